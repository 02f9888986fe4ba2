// A C++ program that another project builds against oxpipe.
#include <oxpipe.hpp>

#include <iostream>

int main()
{
    oxp::check_abi();
    std::cout << "oxpipe " << oxp::version() << ", ABI " << oxp::abi_version() << '\n';
}

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, get, rmdir

required_conan_version = ">=2.1"


class OxpipeConan(ConanFile):
    name = "oxpipe"
    description = (
        "Runs multi-component generative ONNX models, each component on a native Rust runtime or on ONNX Runtime"
    )
    license = ("MIT", "Apache-2.0")
    homepage = "https://github.com/oxpipe/oxpipe"
    url = "https://github.com/conan-io/conan-center-index"
    topics = ("onnx", "inference", "ffi", "llm")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "native": [True, False],
        "ort": [True, False],
    }
    default_options = {
        "shared": True,
        "fPIC": True,
        "native": True,
        "ort": True,
    }

    def config_options(self):
        if self.settings.os == "Windows":
            del self.options.fPIC

    def configure(self):
        # Rust makes position-independent code, and the interface is C's.
        self.options.rm_safe("fPIC")
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def package_id(self):
        # Cargo builds it optimised whatever the configuration of who uses it.
        self.info.settings.rm_safe("build_type")

    def validate(self):
        if self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("oxpipe is for 64-bit systems: x86_64 and armv8")
        if not (self.options.native or self.options.ort):
            raise ConanInvalidConfiguration("oxpipe needs a backend: native or ort")

    def source(self):
        get(self, **self.conan_data["sources"][self.version], strip_root=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["OXPIPE_NATIVE"] = bool(self.options.native)
        toolchain.cache_variables["OXPIPE_ORT"] = bool(self.options.ort)
        toolchain.cache_variables["OXPIPE_SHARED"] = bool(self.options.shared)
        toolchain.cache_variables["OXPIPE_STATIC"] = not self.options.shared
        toolchain.cache_variables["OXPIPE_INSTALL"] = True
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE-*", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rmdir(self, os.path.join(self.package_folder, "share"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "oxpipe")
        target = "oxpipe::oxpipe" if self.options.shared else "oxpipe::oxpipe_static"
        self.cpp_info.set_property("cmake_target_name", target)
        self.cpp_info.set_property("pkg_config_name", "oxpipe")
        import_library = self.options.shared and self.settings.os == "Windows"
        self.cpp_info.libs = ["oxpipe.dll" if import_library else "oxpipe"]
        if self.options.shared:
            return
        if self.settings.os == "Linux":
            self.cpp_info.system_libs = ["gcc_s", "util", "rt", "pthread", "m", "dl"]
        elif self.settings.os == "Windows":
            self.cpp_info.system_libs = ["kernel32", "ntdll", "userenv", "ws2_32", "dbghelp", "bcrypt", "advapi32"]

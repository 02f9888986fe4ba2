//! How much memory a call takes at most.

use oxpipe_test_support::counting_allocator::Counting;
pub use oxpipe_test_support::counting_allocator::most_bytes as of;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

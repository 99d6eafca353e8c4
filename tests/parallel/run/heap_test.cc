// Tests that memory comes only from MemoryPools once the model is built: no step makes a heap allocation above 64 KiB. This file counts
// calls of malloc, so it is compiled only without a sanitizer, which replaces malloc.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "models/presets.h"
#include "tests/parallel/run/support_run.h"

extern "C" {
void* __libc_malloc(size_t);            // NOLINT
void* __libc_calloc(size_t, size_t);    // NOLINT
void* __libc_realloc(void*, size_t);    // NOLINT
void* __libc_memalign(size_t, size_t);  // NOLINT
}

namespace {
std::atomic<bool> counting{false};
std::atomic<long> large{0}, largest{0};

void count(size_t bytes) {
  if (!counting || bytes <= 64 * 1024) return;
  ++large;
  for (long was = largest; static_cast<long>(bytes) > was && !largest.compare_exchange_weak(was, static_cast<long>(bytes));) {
  }
}
}  // namespace

extern "C" {
void* malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) {
  count(n * bytes);
  return __libc_calloc(n, bytes);
}
void* realloc(void* old, size_t bytes) {
  count(bytes);
  return __libc_realloc(old, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) noexcept {
  count(bytes);
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
}

namespace spillway::test::heap_test {
namespace {

using parallel::Tier;

RunOptions counted(Tier tier) {
  RunOptions o;
  o.model = models::preset("llama-tiny");
  o.model.vocabulary = 5000;  // this vocabulary makes the output head larger than a tile of any kernel
  o.parameters = o.gradients = o.optimizer = tier;
  o.micro_batch_size = 4;
  o.sequence_length = 256;
  o.micro_batches = 2;
  o.threads = 2;
  o.steps = 3;
  o.recompute = tier == Tier::nvme;
  return o;
}

class HeapRelease : public testing::TestWithParam<Tier> {};

TEST_P(HeapRelease, NoLargeAllocationInAStep) {
  RunOptions o = counted(GetParam());
  o.steps = 4;
  long in_steps = 0;
  o.batches = [&](i64 step, int) {
    if (step == 3) in_steps = large, counting = false;  // counting ends after three complete steps
    StepBatch batch = random_batch(o, step);
    if (step == 0) large = largest = 0, counting = true;
    return batch;
  };
  train(o);
  EXPECT_EQ(in_steps, 0) << "the largest was of " << largest << " bytes";
}

TEST_P(HeapRelease, TheCountSeesALargeAllocation) {
  large = 0;
  counting = true;
  std::vector<char> big(1 << 20);
  counting = false;
  EXPECT_GE(large, 1) << big.size();
}

INSTANTIATE_TEST_SUITE_P(Tiers, HeapRelease, testing::Values(Tier::device, Tier::nvme));

}  // namespace
}  // namespace spillway::test::heap_test
#endif

#include "trainer/node/forget.h"

#include "device/stream.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace spillway::trainer {
namespace {

constexpr i64 kLineBytes = 64, kGrainBytes = 1 << 20;

#if defined(__x86_64__)
// Returns whether the processor has clflushopt, which processors before 2015
// lack. The older clflush waits for every cache line and is five times slower.
bool flushes_many() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 23 & 1) != 0;
}

__attribute__((target("clflushopt"))) void flush_many(const std::byte* begin, const std::byte* end) {
  for (; begin < end; begin += kLineBytes) _mm_clflushopt(const_cast<std::byte*>(begin));
  _mm_sfence();
}

void flush(const std::byte* begin, const std::byte* end) {
  static const bool many = flushes_many();
  if (many) return flush_many(begin, end);
  for (; begin < end; begin += kLineBytes) _mm_clflush(begin);
}
#else
void flush(const std::byte*, const std::byte*) {}
#endif

}  // namespace

void forget(std::span<const std::byte> bytes) {
  Stream::current().for_ranges(std::ssize(bytes), kGrainBytes,
                               [&](i64 begin, i64 end) { flush(bytes.data() + begin, bytes.data() + end); });
}

}  // namespace spillway::trainer

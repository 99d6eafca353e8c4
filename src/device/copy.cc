#include "device/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "device/stream.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace spillway {
namespace {

constexpr i64 kLineBytes = 64;
constexpr i64 kGrainBytes = 1 << 18;

#if defined(__x86_64__)
// Copies whole cache lines with non-temporal stores, which every x86-64 processor
// has. Four of them fill a line, which then goes to memory in one piece.
i64 stream_lines(std::byte* to, const std::byte* from, i64 bytes) {
  i64 done = 0;
  for (; done + kLineBytes <= bytes; done += kLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  return done;
}
#else
i64 stream_lines(std::byte*, const std::byte*, i64) { return 0; }
#endif

void copy(std::byte* to, const std::byte* from, i64 bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

void copy_piece(std::byte* to, const std::byte* from, i64 bytes) {
  const i64 misaligned = static_cast<i64>(reinterpret_cast<std::uintptr_t>(to) % kLineBytes);
  const i64 head = std::min(bytes, misaligned == 0 ? 0 : kLineBytes - misaligned);
  copy(to, from, head);
  const i64 done = head + stream_lines(to + head, from + head, bytes - head);
  copy(to + done, from + done, bytes - done);
}

}  // namespace

void copy_past_caches(std::byte* to, const std::byte* from, i64 bytes) {
  Stream::current().for_ranges(bytes, kGrainBytes, [&](i64 begin, i64 end) { copy_piece(to + begin, from + begin, end - begin); });
}

}  // namespace spillway

#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

namespace spillway {
namespace {

constexpr u32 kPolynomial = 0x82F63B78u;  // the polynomial with its bits reversed: the lowest bit is the coefficient of the highest power
constexpr u32 kOne = u32{1} << 31;

u32 update(u32 crc, std::span<const std::byte> bytes) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // the most bytes per call, since the library takes the length as an int
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kMostAtOnce);
    // the function of the library takes a non-const pointer
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
    crc = crc32_iscsi(data, static_cast<int>(count), crc);
    bytes = bytes.subspan(count);
  }
  return crc;
}

// Multiplies two polynomials over GF(2) modulo the CRC's polynomial.
constexpr u32 product(u32 a, u32 b) {
  u32 sum = 0;
  for (u32 bit = kOne; bit != 0 && a != 0; bit >>= 1) {
    if (a & bit) sum ^= b, a ^= bit;
    b = b & 1 ? b >> 1 ^ kPolynomial : b >> 1;
  }
  return sum;
}

// Element k of kZeroBytes is x^(8 * 2^k) modulo the CRC's polynomial.
// Multiplying a CRC by it gives the CRC of the data followed by 2^k zero bytes.
constexpr auto kZeroBytes = [] {
  std::array<u32, 63> powers{};
  powers[0] = kOne >> 8;
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = product(powers[k - 1], powers[k - 1]);
  return powers;
}();

u32 shifted(u32 crc, i64 bytes) {
  for (size_t k = 0; bytes != 0; ++k, bytes >>= 1) {
    if (bytes & 1) crc = product(crc, kZeroBytes[k]);
  }
  return crc;
}

}  // namespace

u32 crc32c(std::span<const std::byte> bytes) { return ~update(~u32{0}, bytes); }

u32 crc32c_share(std::span<const std::byte> piece, i64 after) { return shifted(update(0, piece), after); }

u32 crc32c_of_zeros(i64 bytes) { return ~shifted(~u32{0}, bytes); }

}  // namespace spillway

// Makes tiles of every state format, filled with values that reveal differences, and compares tiles bit by bit.
#pragma once
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "optim/adamw_tile.h"
#include "optim/tile_values.h"
#include "tests/optim/support_values.h"

namespace spillway::test {

using optim::kTileElems;
using optim::Master;
using optim::Moments;
using optim::StateFormat;

inline std::vector<StateFormat> all_formats() {
  std::vector<StateFormat> formats{optim::plain_format(DType::f64)};
  for (DType gradient : {DType::f32, DType::bf16}) {
    for (Moments moments : {Moments::fp32, Moments::bf16, Moments::int8}) {
      formats.push_back({DType::f32, Master::fp32, moments, gradient});
      formats.push_back({DType::f16, Master::fp32, moments, gradient});
      for (Master master : {Master::fp32, Master::split}) formats.push_back({DType::bf16, master, moments, gradient});
    }
  }
  return formats;
}

inline std::string name(const StateFormat& f) {
  const char* moments[] = {"fp32", "bf16", "int8"};
  return std::string(to_string(f.weight)) + (f.master == Master::split ? "_split" : "") + "_moments_" +
         moments[static_cast<int>(f.moments)] + "_gradient_" + std::string(to_string(f.gradient));
}

/// Holds a buffer whose address is a multiple of 4096, followed by guard bytes that must stay untouched.
class AlignedBytes {
 public:
  static constexpr size_t kGuardBytes = 64;
  explicit AlignedBytes(i64 bytes = 0)
      : size_(static_cast<size_t>(bytes)), data_(static_cast<std::byte*>(::operator new(size_ + kGuardBytes, std::align_val_t(4096)))) {
    std::memset(data_.get(), 0xa5, size_ + kGuardBytes);
  }
  AlignedBytes(const AlignedBytes& other) : AlignedBytes(static_cast<i64>(other.size_)) {
    std::memcpy(data_.get(), other.data_.get(), size_);
  }
  AlignedBytes& operator=(AlignedBytes other) {
    std::swap(size_, other.size_), std::swap(data_, other.data_);
    return *this;
  }
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool guard_holds() const {
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (data_.get()[size_ + i] != std::byte{0xa5}) return false;
    }
    return true;
  }
  bool operator==(const AlignedBytes& other) const { return size_ == other.size_ && std::memcmp(data(), other.data(), size_) == 0; }

 private:
  struct Free {
    void operator()(std::byte* at) const { ::operator delete(at, std::align_val_t(4096)); }
  };
  size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

struct Tile {
  explicit Tile(const StateFormat& f) : weight(f.weight_tile_bytes()), state(f.state_tile_bytes()) {}
  AlignedBytes weight, state;
  bool operator==(const Tile&) const = default;
};

inline void randomize(const AlignedBytes& bytes, std::mt19937_64& random) {
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const u64 word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
}

/// Returns a random tile. Values::any draws every bit pattern of every column, including scales. Other kinds keep v >= 0.
inline Tile random_tile(const StateFormat& f, Values kind, std::mt19937_64& random) {
  Tile tile(f);
  if (kind == Values::any) {
    randomize(tile.weight, random);
    randomize(tile.state, random);
    if (f.moments != Moments::int8) return tile;
    const i64 used = f.scales_begin_bytes() + 2 * optim::kScalesBytes;
    std::memset(tile.state.data() + used, 0, static_cast<size_t>(f.state_tile_bytes() - used));
    return tile;
  }
  const auto values = [&] {
    if (f.weight == DType::f64) return draw<double>(kTileElems, kind, random);
    const auto narrow = draw<float>(kTileElems, kind, random);
    return std::vector<double>(narrow.begin(), narrow.end());
  };
  const auto master = values(), m = values();
  auto v = values();
  for (double& x : v) x = std::abs(x);
  optim::write_tile<double>(f, {master, m, v}, tile.weight.data(), tile.state.data());
  return tile;
}

/// Returns a random tile of a format with a moving average. The average does not equal the weights.
inline Tile averaged_tile(const StateFormat& f, std::mt19937_64& random) {
  const auto values = [&] {
    const auto narrow = draw<float>(kTileElems, Values::ordinary, random);
    return std::vector<double>(narrow.begin(), narrow.end());
  };
  const auto master = values(), m = values(), average = values();
  auto v = values();
  for (double& x : v) x = std::abs(x);
  Tile tile(f);
  optim::write_tile<double>(f, {.master = master, .first = m, .second = v, .average = average}, tile.weight.data(), tile.state.data());
  return tile;
}

inline AlignedBytes random_gradient(const StateFormat& f, Values kind, std::mt19937_64& random) {
  AlignedBytes bytes(f.gradient_tile_bytes());
  if (f.gradient == DType::f64) {
    const auto values = draw<double>(kTileElems, kind, random);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  const auto values = draw<float>(kTileElems, kind, random);
  for (size_t i = 0; i < values.size(); ++i) {
    const u32 bits = std::bit_cast<u32>(values[i]);
    if (f.gradient == DType::f32)
      std::memcpy(bytes.data() + 4 * i, &bits, 4);
    else
      std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const char*>(&bits) + 2, 2);
  }
  return bytes;
}

template <class T>
bool same_elements(const std::byte* a, const std::byte* b, i64 bytes) {
  for (i64 at = 0; at < bytes; at += static_cast<i64>(sizeof(T))) {
    T x, y;
    std::memcpy(&x, a + at, sizeof(T)), std::memcpy(&y, b + at, sizeof(T));
    if (!same(x, y)) return false;
  }
  return true;
}

/// Returns whether two tiles are equal to the bit, except that NaNs in f32 and f64 columns count as equal.
inline bool same(const StateFormat& f, const Tile& a, const Tile& b) {
  if (f.weight == DType::f64) {
    return same_elements<double>(a.weight.data(), b.weight.data(), f.weight_tile_bytes()) &&
           same_elements<double>(a.state.data(), b.state.data(), f.state_tile_bytes());
  }
  const bool weights = f.weight == DType::f32 ? same_elements<float>(a.weight.data(), b.weight.data(), f.weight_tile_bytes())
                                              : std::memcmp(a.weight.data(), b.weight.data(), a.weight.size()) == 0;
  const i64 exact_bytes = f.moments == Moments::fp32 ? f.m_begin_bytes() : f.state_tile_bytes();
  return weights && std::memcmp(a.state.data(), b.state.data(), static_cast<size_t>(exact_bytes)) == 0 &&
         same_elements<float>(a.state.data() + exact_bytes, b.state.data() + exact_bytes, f.state_tile_bytes() - exact_bytes);
}

inline std::vector<float> read(const StateFormat& f, optim::StatePart part, const Tile& tile) {
  std::vector<float> values(kTileElems);
  optim::read_part<float>(f, part, tile.weight.data(), tile.state.data(), 0, values);
  return values;
}

}  // namespace spillway::test

// Reads the tests' own reference data (tests/data, safetensors files that are trusted). The program itself reads through
// data/safetensors/safetensors.h.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tensor/tensor.h"
#include "tests/support/fixtures.h"

namespace spillway::test {

class ReferenceFile {
 public:
  explicit ReferenceFile(const std::filesystem::path& name) {
    std::ifstream in(data(name), std::ios::binary);
    bytes_ = (std::stringstream() << in.rdbuf()).str();
    u64 header_bytes = 0;
    if (bytes_.size() < 8) throw std::runtime_error("no reference data in " + name.string());
    std::memcpy(&header_bytes, bytes_.data(), 8);
    header_ = nlohmann::json::parse(bytes_.substr(8, header_bytes));
    begin_ = 8 + header_bytes;
  }

  bool has(const std::string& name) const { return header_.contains(name); }

  /// Returns a tensor as stored, except that 64-bit integers become int32 and booleans uint8.
  Tensor get(const std::string& name) const {
    const auto& entry = header_.at(name);
    const auto extents = entry.at("shape").get<std::vector<i64>>();
    const Shape shape{std::span<const i64>(extents)};
    const char* from = bytes_.data() + begin_ + entry.at("data_offsets").at(0).get<size_t>();
    const std::string dtype = entry.at("dtype");
    if (dtype == "F32") return copied<float>(from, shape);
    if (dtype == "F64") return copied<double>(from, shape);
    if (dtype == "BOOL") return copied<u8>(from, shape);
    if (dtype != "I64") throw std::runtime_error("unexpected dtype " + dtype);
    std::vector<i32> values(static_cast<size_t>(shape.elems()));
    for (size_t i = 0; i < values.size(); ++i) {
      i64 value = 0;
      std::memcpy(&value, from + 8 * i, 8);
      values[i] = static_cast<i32>(value);
    }
    return tensor_of<i32>(values, shape);
  }

 private:
  template <class T>
  static Tensor copied(const char* from, const Shape& shape) {
    std::vector<T> values(static_cast<size_t>(shape.elems()));
    std::memcpy(values.data(), from, values.size() * sizeof(T));
    return tensor_of<T>(values, shape);
  }
  std::string bytes_;
  nlohmann::json header_;
  size_t begin_ = 0;
};

}  // namespace spillway::test

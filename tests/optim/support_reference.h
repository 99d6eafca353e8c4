// Reads the files of tests/data/optim, which are trusted: safetensors (8 bytes of header length, JSON
// header, data) and the lists of learning rates of schedules. A missing name throws, which fails the test.
#pragma once
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/types.h"
#include "tests/support/fixtures.h"

namespace spillway::test {

inline std::string slurp(const std::string& name) {
  std::ifstream file(test::data("optim/" + name), std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Reference {
 public:
  explicit Reference(const std::string& name) : bytes_(slurp(name)) {
    u64 header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), 8);
    data_begin_ = 8 + header_bytes;
  }

  /// Returns an F32 or F64 tensor of the file as a flat vector of T.
  template <class T>
  std::vector<T> get(const std::string& name) const {
    const size_t entry = find("\"" + name + "\":{", 0);
    const bool is_f32 = bytes_.compare(find("\"dtype\":\"", entry) + 9, 3, "F32") == 0;
    const char* offsets = bytes_.data() + find("\"data_offsets\":[", entry) + 16;
    char* comma = nullptr;
    const size_t begin = std::strtoull(offsets, &comma, 10), end = std::strtoull(comma + 1, nullptr, 10);
    const char* at = bytes_.data() + data_begin_ + begin;
    return is_f32 ? widen<float, T>(at, end - begin) : widen<double, T>(at, end - begin);
  }

 private:
  size_t find(const std::string& text, size_t from) const {
    const size_t at = bytes_.find(text, from);
    if (at == std::string::npos || at >= data_begin_) throw std::runtime_error("no " + text);
    return at;
  }
  template <class From, class T>
  static std::vector<T> widen(const char* at, size_t count_bytes) {
    std::vector<From> raw(count_bytes / sizeof(From));
    std::memcpy(raw.data(), at, count_bytes);
    return std::vector<T>(raw.begin(), raw.end());
  }
  std::string bytes_;
  size_t data_begin_ = 0;
};

inline std::vector<double> reference_rates(const std::string& schedule) {
  const std::string text = slurp("lr_schedules.json");
  const size_t entry = text.find("\"" + schedule + "\": {"), list = text.find("\"lr\": [", entry);
  if (entry == std::string::npos || list == std::string::npos) throw std::runtime_error("no schedule " + schedule);
  std::vector<double> rates;
  for (const char* at = text.c_str() + list + 7; *at != ']';) {
    char* end = nullptr;
    rates.push_back(std::strtod(at, &end));
    at = end + std::strspn(end, ", \n");
  }
  return rates;
}

}  // namespace spillway::test

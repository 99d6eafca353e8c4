#include "data/safetensors/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "data/files/file.h"
#include "data/safetensors/element_count.h"

namespace spillway::data {
namespace {

using nlohmann::json;

struct DTypeName {
  std::string_view name;
  std::optional<DType> dtype;  // the dtype; no value if this program does not support it
  i64 bits = 0;                // the bits per element of a dtype that this program does not support
};

// All dtypes of version 0.8 of the safetensors library.
constexpr std::array kDTypes = {
    DTypeName{"F32", DType::f32},    DTypeName{"F64", DType::f64},   DTypeName{"BF16", DType::bf16}, DTypeName{"F16", DType::f16},
    DTypeName{"I32", DType::int32},  DTypeName{"I64", DType::int64}, DTypeName{"U8", DType::uint8},  DTypeName{"BOOL", DType::boolean},
    DTypeName{"I8", {}, 8},          DTypeName{"I16", {}, 16},       DTypeName{"U16", {}, 16},       DTypeName{"U32", {}, 32},
    DTypeName{"U64", {}, 64},        DTypeName{"C64", {}, 64},       DTypeName{"F4", {}, 4},         DTypeName{"F6_E2M3", {}, 6},
    DTypeName{"F6_E3M2", {}, 6},     DTypeName{"F8_E5M2", {}, 8},    DTypeName{"F8_E4M3", {}, 8},    DTypeName{"F8_E8M0", {}, 8},
    DTypeName{"F8_E4M3FNUZ", {}, 8}, DTypeName{"F8_E5M2FNUZ", {}, 8}};

std::string_view safetensors_name(DType dtype) { return std::ranges::find(kDTypes, std::optional(dtype), &DTypeName::dtype)->name; }

/// Parses the header's JSON from SAX events (one call per JSON token). The grammar is fixed, so the
/// parser is always in one of a few states. An event that the current state does not allow throws.
class HeaderWalk final : public nlohmann::json_sax<json> {
 public:
  HeaderWalk(const std::string& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(fmt::format("the negative number {}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected("the number " + text.substr(0, 40)); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) return extent(value);
    if (place_ != Place::offsets) return unexpected("a number");
    if (offsets_.size() == 2) fail("expected two data_offsets, got more");
    if (value > static_cast<u64>(std::numeric_limits<i64>::max())) fail(fmt::format("the data offset {} is too large", value));
    offsets_.push_back(static_cast<i64>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[entry_] = value;
    } else if (place_ == Place::tensor && field_ == "dtype") {
      dtype_ = value;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = entry_ == "__metadata__" ? Place::metadata : Place::tensor;
      fields_.clear();
      shape_.clear();
      offsets_.clear();
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (place_ == Place::tensor && name != "dtype" && name != "shape" && name != "data_offsets") {
      fail("expected dtype, shape and data_offsets, got the field " + in_quotes(name));
    }
    const bool is_new = place_ == Place::metadata ? header_.metadata.emplace(name, "").second
                                                  : (place_ == Place::top ? names_ : fields_).insert(name).second;
    if (!is_new) fail("the key " + in_quotes(name) + " appears twice");
    (place_ == Place::tensor ? field_ : entry_) = name;
    if (place_ == Place::top) tensor_ = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) finish_tensor();
    place_ = place_ == Place::top ? Place::end : Place::top;
    tensor_.clear();
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && field_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && field_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      return unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(fmt::format("the header is not JSON in UTF-8: the error is at byte {} of the header", position));
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets, end };

  [[noreturn]] void fail(const std::string& why) const {
    const std::string where = tensor_.empty() ? "" : ", " + (tensor_ == "__metadata__" ? tensor_ : "tensor " + in_quotes(tensor_));
    throw Error(ErrorCode::data, fmt::format("[safetensors] {}{}: {}", file_, where, why));
  }

  bool unexpected(const std::string& got) const {
    constexpr std::array kExpected = {"an object as the header",        "an object for each name",
                                      "a string for each key",          "dtype as a string, shape and data_offsets as arrays",
                                      "extents that are whole numbers", "data_offsets that are whole numbers",
                                      "the end of the header"};
    fail(fmt::format("expected {}, got {}", kExpected[static_cast<size_t>(place_)], got));
  }

  bool extent(u64 value) {
    constexpr size_t kMostExtents = 64;  // the limit on the axes of a tensor, also of one that this program can list but not read
    if (shape_.size() == kMostExtents) fail(fmt::format("expected at most {} extents, got more", kMostExtents));
    if (value > static_cast<u64>(std::numeric_limits<i64>::max())) fail(fmt::format("the extent {} is too large", value));
    shape_.push_back(static_cast<i64>(value));
    return true;
  }

  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) fail(fmt::format("the field {} is missing", field));
    }
    if (offsets_.size() != 2) fail(fmt::format("expected two data_offsets, got {}", offsets_.size()));
    const DTypeName& dtype = known_dtype();
    const i64 bytes = checked_bytes(dtype.dtype ? 8 * size_of(*dtype.dtype) : dtype.bits);
    TensorInfo info{.name = tensor_, .begin = offsets_[0], .end = offsets_[1]};
    if (info.begin > info.end) fail(fmt::format("the data ends at {}, before it begins at {}", info.end, info.begin));
    const std::string what = fmt::format("{} [{}]", dtype.name, fmt::join(shape_, ", "));
    if (info.bytes() != bytes)
      fail(fmt::format("expected {} bytes of data for {}, got the byte range {} to {}", bytes, what, info.begin, info.end));
    if (dtype.dtype && shape_.size() <= Shape::kMaxRank) {
      info.dtype = *dtype.dtype;
      info.shape = Shape(shape_);
    } else {
      info.foreign = what;
      info.dtype = DType::uint8;
      info.shape = Shape{bytes};
    }
    header_.tensors.push_back(std::move(info));
  }

  const DTypeName& known_dtype() const {
    const auto entry = std::ranges::find(kDTypes, dtype_, &DTypeName::name);
    if (entry == kDTypes.end()) fail("the format has no dtype " + in_quotes(dtype_));
    return *entry;
  }

  i64 checked_bytes(i64 bits) const {
    const std::optional<i64> elems = element_count(shape_);
    if (!elems) fail(fmt::format("the product of the tensor's extents exceeds {} elements, the limit for a tensor", kMostElements));
    if (*elems * bits % 8 != 0) fail("the tensor's elements do not fill a whole number of bytes");
    return *elems * bits / 8;
  }

  const std::string& file_;
  SafetensorsHeader& header_;
  Place place_ = Place::start;
  std::set<std::string> names_, fields_;
  std::string entry_, field_, tensor_, dtype_;
  std::vector<i64> shape_, offsets_;
};

// Checks that the byte ranges tile the data section: there is no gap, no overlap and no byte behind the last range.
void check_tiling(const SafetensorsHeader& header, i64 data_bytes, const std::string& file) {
  i64 at = 0;
  for (const TensorInfo& t : header.tensors) {
    if (t.begin != at) {
      throw Error(ErrorCode::data,
                  fmt::format("[safetensors] {}, tensor {}: expected its data to begin at {}, where the tensor before ends, got {} ({})",
                              file, in_quotes(t.name), at, t.begin, t.begin < at ? "an overlap" : "a gap"));
    }
    at = t.end;
  }
  if (at != data_bytes) {
    throw Error(ErrorCode::data,
                fmt::format("[safetensors] {}: the header describes {} bytes of data, but the file has {} ({})", file, at, data_bytes,
                            at > data_bytes ? "the file was cut short" : "there are bytes after the last tensor"));
  }
}

}  // namespace

void reject_safetensors(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[safetensors] {}: {}", path.string(), why));
}

SafetensorsHeader parse_safetensors_header(const std::string& text, i64 data_bytes, const std::string& file) {
  if (!text.starts_with('{')) throw Error(ErrorCode::data, fmt::format("[safetensors] {}: the header does not begin with {{", file));
  SafetensorsHeader header;
  HeaderWalk walk(file, header);
  json::sax_parse(text, &walk);
  std::ranges::stable_sort(header.tensors, {}, [](const TensorInfo& t) { return std::pair(t.begin, t.end); });
  check_tiling(header, data_bytes, file);
  return header;
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  const auto text_of = [](const std::string& s) {
    try {
      return json(s).dump();
    } catch (const json::exception&) {
      throw Error(ErrorCode::bug, "[safetensors] expected a name in UTF-8, got " + in_quotes(s));
    }
  };
  std::string text = "{";
  const auto comma = [&] { return text.size() > 1 ? "," : ""; };
  if (!header.metadata.empty()) {
    std::string pairs;
    for (auto& [key, value] : header.metadata) pairs += (pairs.empty() ? "" : ",") + text_of(key) + ":" + text_of(value);
    text += "\"__metadata__\":{" + pairs + "}";
  }
  for (const TensorInfo& t : header.tensors) {
    std::string extents;
    for (const i64 n : t.shape.extents()) extents += (extents.empty() ? "" : ",") + std::to_string(n);
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma(), text_of(t.name),
                        safetensors_name(t.dtype), extents, t.begin, t.end);
  }
  text += "}";
  text.resize(static_cast<size_t>(round_up(static_cast<i64>(text.size()), 8)), ' ');
  return text;
}

}  // namespace spillway::data

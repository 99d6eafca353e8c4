#include "trainer/events/event.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/json.h"

namespace spillway::trainer {
namespace {

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes.push_back(static_cast<char>(value >> 8 * i & 0xff));
  return bytes;
}

std::string varint(u64 value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

enum class Wire { varint = 0, bits64 = 1, bytes = 2, bits32 = 5 };

std::string key(int field, Wire wire) { return varint(static_cast<u64>(field) << 3 | static_cast<u64>(wire)); }

std::string whole(int field, i64 value) { return key(field, Wire::varint) + varint(static_cast<u64>(value)); }
std::string real64(int field, double value) { return key(field, Wire::bits64) + little_endian(std::bit_cast<u64>(value)); }
std::string real32(int field, float value) { return key(field, Wire::bits32) + little_endian(std::bit_cast<u32>(value)); }
std::string bytes(int field, std::string_view value) { return key(field, Wire::bytes) + varint(value.size()) + std::string(value); }

// The fields of the protobuf message Event are: 1 wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.
std::string event(double wall_time, i64 step, const std::string& what) { return framed(real64(1, wall_time) + whole(2, step) + what); }

std::string packed(int field, std::span<const double> values) {
  std::string all;
  for (const double v : values) all += little_endian(std::bit_cast<u64>(v));
  return bytes(field, all);
}

// The fields of the protobuf message Summary.Value are: 1 tag, 2 simple_value, 5 histo, 8 tensor, 9 metadata.
std::string value(std::string_view tag, const std::string& what) { return bytes(1, bytes(1, tag) + what); }

// Replaces bytes that are not valid UTF-8. The text is written as JSON and read back, because the JSON writer replaces such bytes.
std::string as_utf8(std::string_view text) {
  using Json = nlohmann::json;
  return parse_json(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

// Indents every line by four spaces, so that Markdown shows the text verbatim.
std::string indented(const std::string& text) {
  std::string lines = "    ";
  for (const char c : text) {
    lines.push_back(c);
    if (c == '\n') lines += "    ";
  }
  return lines;
}

std::string masked_crc(std::string_view text) { return little_endian(std::rotr(crc32c(std::as_bytes(std::span(text))), 15) + 0xa282ead8u); }

}  // namespace

std::string framed(std::string_view bytes) {
  const std::string length = little_endian(u64{bytes.size()});
  return length + masked_crc(length) + std::string(bytes) + masked_crc(bytes);
}

std::string first_event(double wall_time) { return framed(real64(1, wall_time) + bytes(3, "brain.Event:2")); }

std::string start_event(double wall_time, i64 step) {
  constexpr i64 kStart = 1;  // START, a value of SessionLog's field 1, status
  return event(wall_time, step, bytes(7, whole(1, kStart)));
}

std::string scalars_event(double wall_time, i64 step, std::span<const Scalar> scalars) {
  std::string values;
  for (const Scalar& scalar : scalars) values += value(scalar.tag, real32(2, static_cast<float>(scalar.value)));
  return event(wall_time, step, bytes(5, values));
}

// The fields of the protobuf message SummaryMetadata are: 1 plugin_data, whose field 1 is
// plugin_name; 4 data_class. Those of TensorProto are: 1 dtype, 2 tensor_shape, 8 string_val.
std::string text_event(double wall_time, i64 step, std::string_view tag, std::string_view text) {
  constexpr i64 kTensor = 2, kString = 7;
  const std::string metadata = bytes(1, bytes(1, "text")) + whole(4, kTensor);
  const std::string tensor = whole(1, kString) + bytes(2, "") + bytes(8, indented(as_utf8(text)));
  return event(wall_time, step, bytes(5, value(tag, bytes(8, tensor) + bytes(9, metadata))));
}

// The fields of HistogramProto (tensorflow/core/framework/histogram.proto)
// are: 1 min, 2 max, 3 num, 4 sum, 5 sum_squares, 6 bucket_limit, 7 bucket.
std::string histogram_event(double wall_time, i64 step, std::string_view tag, const Histogram& histogram) {
  const Histogram::Buckets buckets = histogram.buckets();
  const std::string numbers = real64(1, histogram.min()) + real64(2, histogram.max()) + real64(3, static_cast<double>(histogram.count())) +
                              real64(4, histogram.sum()) + real64(5, histogram.sum_of_squares());
  const std::string histo = numbers + packed(6, buckets.limits) + packed(7, buckets.counts);
  return event(wall_time, step, bytes(5, value(tag, bytes(5, histo))));
}

}  // namespace spillway::trainer

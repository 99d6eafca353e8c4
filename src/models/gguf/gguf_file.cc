#include "models/gguf/gguf_file.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace spillway::models {
namespace {

constexpr i64 kAlignment = 32;  // the default for files without general.alignment
constexpr u32 kVersion = 3;

// GGUF's numbers for the types of metadata values.
constexpr u32 kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
void append(std::string& bytes, T value) {
  static_assert(std::endian::native == std::endian::little);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_text(std::string& bytes, std::string_view text) {
  append(bytes, static_cast<u64>(text.size()));
  bytes.append(text);
}

void append_array(std::string& bytes, u32 type, size_t count) {
  append(bytes, type);
  append(bytes, static_cast<u64>(count));
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

const char* to_string(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return "F32";
    case GgufType::f16:
      return "F16";
    case GgufType::bf16:
      return "BF16";
    case GgufType::q8_0:
      return "Q8_0";
  }
  return "?";
}

i64 gguf_bytes(GgufType type, i64 elems) {
  if (type == GgufType::q8_0) return elems / 32 * 34;
  return elems * (type == GgufType::f32 ? 4 : 2);
}

void GgufMetadata::begin(std::string_view key, u32 type) {
  append_text(bytes_, key);
  append(bytes_, type);
  ++count_;
}

void GgufMetadata::add(std::string_view key, u32 value) {
  begin(key, kUint32);
  append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, float value) {
  begin(key, kFloat32);
  append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, bool value) {
  begin(key, kBool);
  append(bytes_, static_cast<u8>(value));
}

void GgufMetadata::add(std::string_view key, const std::string& value) {
  begin(key, kString);
  append_text(bytes_, value);
}

void GgufMetadata::add(std::string_view key, const std::vector<std::string>& values) {
  begin(key, kArray);
  append_array(bytes_, kString, values.size());
  for (const std::string& value : values) append_text(bytes_, value);
}

void GgufMetadata::add(std::string_view key, const std::vector<float>& values) {
  begin(key, kArray);
  append_array(bytes_, kFloat32, values.size());
  for (const float value : values) append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, const std::vector<i32>& values) {
  begin(key, kArray);
  append_array(bytes_, kInt32, values.size());
  for (const i32 value : values) append(bytes_, value);
}

i64 GgufTensor::elems() const {
  i64 all = 1;
  for (const i64 extent : extents) all *= extent;
  return all;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors)
    : file_(data::File::create(path)) {
  std::string header = "GGUF";
  append(header, kVersion);
  append(header, static_cast<u64>(tensors.size()));
  append(header, static_cast<u64>(metadata.count()));
  header += metadata.bytes();
  i64 offset = 0;
  for (const GgufTensor& t : tensors) {
    append_text(header, t.name);
    append(header, static_cast<u32>(t.extents.size()));
    for (const i64 extent : t.extents) append(header, static_cast<u64>(extent));
    append(header, static_cast<u32>(t.type));
    append(header, static_cast<u64>(offset));
    places_.push_back({offset, t.bytes()});
    offset += round_up(t.bytes(), kAlignment);
    missing_bytes_ += t.bytes();
  }
  const i64 data_begin = round_up(std::ssize(header), kAlignment);
  for (Place& place : places_) place.begin += data_begin;
  file_bytes_ = data_begin + offset;
  file_.reserve(file_bytes_);  // the padding between tensors is never written and reads as zeros
  file_.write(0, bytes_of(header));
}

void GgufWriter::write(size_t tensor, i64 offset, std::span<const std::byte> bytes) {
  const i64 count = std::ssize(bytes);
  require(tensor < places_.size() && offset >= 0 && count <= places_[tensor].bytes - offset,
          "[gguf] expected a range of bytes inside the tensor");
  const i64 begin = places_[tensor].begin + offset;
  file_.write(begin, bytes);
  behind_.wrote(begin, begin + count);
  missing_bytes_ -= count;
}

void GgufWriter::finish() {
  require(missing_bytes_ == 0, "[gguf] expected all bytes of every tensor to be written, got fewer");
  file_.sync();
  file_.close();
}

}  // namespace spillway::models

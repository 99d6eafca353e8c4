#include "models/gguf/gguf_file.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace spillway::models {
namespace {

constexpr i64 kAlignment = 32;  // the default for files without general.alignment
constexpr size_t kMostWaiting = size_t{1} << 20;
constexpr i64 kMostBehind = 64 * kMiB;
constexpr u32 kVersion = 3;

// The type numbers of metadata values.
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
  put(bytes_of(header));
  put(bytes_of(metadata.bytes()));
  std::string infos;
  i64 offset = 0;
  for (const GgufTensor& t : tensors) {
    append_text(infos, t.name);
    append(infos, static_cast<u32>(t.extents.size()));
    for (const i64 extent : t.extents) append(infos, static_cast<u64>(extent));
    append(infos, static_cast<u32>(t.type));
    append(infos, static_cast<u64>(offset));
    left_.push_back(t.bytes());
    offset += (t.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  put(bytes_of(infos));
  pad();
  file_.reserve(end_ + offset);
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  const auto count = static_cast<i64>(bytes.size());
  require(tensor_ < left_.size() && count <= left_[tensor_], "[gguf] more bytes than the tensor has");
  put(bytes);
  if ((left_[tensor_] -= count) > 0) return;
  pad();
  ++tensor_;
}

void GgufWriter::finish() {
  require(tensor_ == left_.size(), "[gguf] a tensor's bytes are missing");
  flush();
  file_.sync();
  file_.close();
}

void GgufWriter::put(std::span<const std::byte> bytes) {
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  end_ += static_cast<i64>(bytes.size());
  if (waiting_.size() >= kMostWaiting) flush();
}

void GgufWriter::pad() {
  static constexpr std::byte kZeros[kAlignment] = {};
  put(std::span(kZeros).first(static_cast<size_t>((kAlignment - end_ % kAlignment) % kAlignment)));
}

// Writes the waiting bytes and starts their transfer to the disk. Some way behind, written pages are dropped from the page cache, where a
// large model would displace the pages of other programs.
void GgufWriter::flush() {
  const auto bytes = static_cast<i64>(waiting_.size());
  if (bytes == 0) return;
  file_.write(at_, waiting_);
  file_.send(at_, bytes);
  at_ += bytes;
  waiting_.clear();
  if (at_ - sent_ < kMostBehind) return;
  file_.send_and_drop(sent_, kMostBehind / 2);
  sent_ += kMostBehind / 2;
}

}  // namespace spillway::models

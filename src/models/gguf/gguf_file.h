// The container of llama.cpp's models, GGUF version 3 (ggml's docs/gguf.md): metadata by key, the tensors' names, extents and types, then
// their bytes one after the other. Written as it comes, whatever the size. One thread.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/file.h"

namespace spillway::models {

/// ggml's numbers of element types.
enum class GgufType : u32 { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
const char* to_string(GgufType type);
/// Bytes of so many elements, whole blocks of them.
i64 gguf_bytes(GgufType type, i64 elems);

/// Keys and values in the order in which they are added.
class GgufMetadata {
 public:
  void add(std::string_view key, u32 value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, const std::string& value);
  void add(std::string_view key, const char* value) { add(key, std::string(value)); }
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add(std::string_view key, const std::vector<i32>& values);

  i64 count() const { return count_; }
  std::string_view bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, u32 type);
  std::string bytes_;
  i64 count_ = 0;
};

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<i64> extents;  // the fastest first, as ggml counts them
  i64 elems() const;
  i64 bytes() const { return gguf_bytes(type, elems()); }
};

class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);
  /// The next bytes of the tensors, which come in the order given; write() never crosses the end of one. Error(io).
  void write(std::span<const std::byte> bytes);
  /// Throws Error(bug) unless every byte was written. What was written is on stable storage on return.
  void finish();
  i64 file_bytes() const { return end_; }

 private:
  void put(std::span<const std::byte> bytes);
  void pad();
  void flush();

  data::File file_;
  std::vector<i64> left_;  // bytes of each tensor that are to come
  size_t tensor_ = 0;
  std::vector<std::byte> waiting_;
  i64 sent_ = 0, at_ = 0, end_ = 0;  // of the file: up to here out of the page cache; written; with what waits
};

}  // namespace spillway::models

// Writes GGUF version 3, the file format of llama.cpp's models (ggml's docs/gguf.md): metadata by key, then names, extents and types of the
// tensors, then their bytes one after the other. The file is streamed, whatever its size. Used by one thread.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/file.h"

namespace spillway::models {

/// Element types, with ggml's numbers.
enum class GgufType : u32 { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
const char* to_string(GgufType type);
/// Returns the bytes of `elems` elements, which must be whole blocks of the type.
i64 gguf_bytes(GgufType type, i64 elems);

/// The metadata of a file: keys and values in the order in which they are added.
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
  std::vector<i64> extents;  // the fastest-varying first, as in ggml
  i64 elems() const;
  i64 bytes() const { return gguf_bytes(type, elems()); }
};

class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);
  /// Writes the next bytes of the tensors, which follow in the order given to the constructor. One call must not cross the end of a tensor.
  /// Throws Error(io).
  void write(std::span<const std::byte> bytes);
  /// Finishes the file; on return it is on stable storage. Throws Error(bug) unless every byte was written.
  void finish();
  i64 file_bytes() const { return end_; }

 private:
  void put(std::span<const std::byte> bytes);
  void pad();
  void flush();

  data::File file_;
  std::vector<i64> left_;  // bytes of each tensor that are still to be written
  size_t tensor_ = 0;
  std::vector<std::byte> waiting_;
  i64 sent_ = 0, at_ = 0, end_ = 0;  // file offsets: dropped from the page cache up to here; written; end including the waiting bytes
};

}  // namespace spillway::models

// Writes GGUF version 3, the file format of llama.cpp's models (ggml's docs/gguf.md): metadata by key, then names, extents and types of the
// tensors, then their bytes one after the other. The file is streamed, whatever its size. Used by one thread.
#pragma once
#include <atomic>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/file.h"
#include "data/files/write_behind.h"

namespace spillway::models {

/// The element types of GGUF tensors, with ggml's numbers.
enum class GgufType : u32 { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };
const char* to_string(GgufType type);
/// Returns the bytes that `elems` elements take. `elems` must be whole blocks of the type.
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
  std::vector<i64> extents;  // the extents with the fastest-varying first, as in ggml
  i64 elems() const;
  i64 bytes() const { return gguf_bytes(type, elems()); }
};

class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors);
  /// Writes bytes of a tensor from `offset` within the tensor on. `tensor` is the tensor's index in the list given
  /// to the constructor. The caller must write each byte exactly once, in any order. Thread-safe. Throws Error(io).
  void write(size_t tensor, i64 offset, std::span<const std::byte> bytes);
  /// Finishes the file. When finish() returns, the file is on stable storage. Throws Error(bug) unless every byte was written.
  void finish();
  i64 file_bytes() const { return file_bytes_; }

 private:
  struct Place {
    i64 begin, bytes;  // the tensor's offset in the file, and its size
  };

  data::File file_;
  data::WriteBehind behind_{file_};
  std::vector<Place> places_;  // one entry for each tensor
  i64 file_bytes_ = 0;
  std::atomic<i64> missing_bytes_ = 0;  // the number of bytes of tensors that are still to be written
};

}  // namespace spillway::models

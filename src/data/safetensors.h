// safetensors files (https://github.com/huggingface/safetensors, "Format"): an untrusted input. Opening checks the header length, JSON,
// every dtype, shape product (overflow), offset pair, that the byte ranges tile the data section without gap or overlap, and duplicate
// keys; nothing is allocated by a number from the file before it is checked against the file's size. Readers and writers stream: no tensor
// is ever held whole. Errors: Error(data) "[safetensors] file, tensor, expected, got"; Damaged where checksums are known; Error(io) with
// errno.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/folder_checksums.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace spillway::data {

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  i64 begin = 0, end = 0;  // bytes within the data section
  /// "I16 [2, 3]" of a type or a rank that this program has no tensors of: then dtype and shape are its bytes'.
  std::string foreign = {};
  i64 bytes() const { return end - begin; }
};

class SafetensorsReader {
 public:
  /// Every byte is read through `checksums`, where there are any.
  explicit SafetensorsReader(const std::filesystem::path& path, std::optional<FileChecksums> checksums = {});
  SafetensorsReader(SafetensorsReader&&) noexcept;
  ~SafetensorsReader();
  const std::filesystem::path& path() const;
  const std::vector<TensorInfo>& tensors() const;  // in offset order
  const TensorInfo* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  /// What bytes [begin, end) of the file are: "header", "tensor a", "tensors a to b".
  std::string describe(i64 begin, i64 end) const;
  /// Bytes [offset, offset + into.size()) of the tensor's data. Thread-safe.
  void read(const TensorInfo& tensor, i64 offset, std::span<std::byte> into) const;
  /// Elements [begin, begin + out.size()) of a floating tensor, widened to fp64. Thread-safe.
  void read_wide(const TensorInfo& tensor, i64 begin, std::span<double> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class SafetensorsWriter {
 public:
  /// joined: another process has created it with the same tensors and metadata; each writes its part.
  enum class Mode { created, joined };
  /// Creates `path` with the header for `tensors` (names, dtypes, shapes; begin and end are filled in, in the given order). The header is
  /// padded with spaces to a multiple of 8, keys in the given order, so equal input gives equal bytes.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata = {}, Mode mode = Mode::created);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  const std::vector<TensorInfo>& tensors() const;
  /// Bytes at `offset` of the tensor's data, in any order, each once. Only the last few MiB stay in the page cache. Thread-safe.
  void write(const TensorInfo& tensor, i64 offset, std::span<const std::byte> from);
  /// Checks that as many bytes were written as the header says, fsyncs and closes. Without it the destructor removes a file it created.
  void finish();
  /// The same where others write other parts: returns the bytes written here, of data_bytes() in all.
  i64 finish_part();
  i64 data_bytes() const;
  i64 file_bytes() const;
  /// Of what was written here, the header by who created the file. See ChecksumSums.
  std::vector<u32> checksum_sums() const;

 private:
  void remove_unfinished() noexcept;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data

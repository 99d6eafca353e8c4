// Reader and writer of safetensors files (https://github.com/huggingface/safetensors, "Format"). The input is untrusted.
// Opening a file checks the header length, the JSON, every dtype, every shape product (overflow), every offset pair,
// duplicate keys, and that the byte ranges tile the data section without gap or overlap. A number from the file is compared
// with the file's size before anything is allocated by it. Reader and writer both stream: they never hold a whole tensor.
// Throws Error(data) "[safetensors] file, tensor, expected, got"; Damaged if checksums are known; Error(io) with errno.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/safetensors/folder_checksums.h"
#include "data/safetensors/tensor_reader.h"

namespace spillway::data {

/// The tensors are in the order of their offsets in the file.
class SafetensorsReader : public TensorReader {
 public:
  /// Opens a file. If `checksums` are given, every byte is verified against them.
  explicit SafetensorsReader(const std::filesystem::path& path, std::optional<FileChecksums> checksums = {});
  SafetensorsReader(SafetensorsReader&&) noexcept;
  ~SafetensorsReader() override;
  const std::filesystem::path& path() const;
  const std::map<std::string, std::string>& metadata() const;
  /// Describes what bytes [begin, end) of the file hold, with a text such
  /// as "header", "tensor a", "tensors a to b" or "header and tensor a".
  std::string describe(i64 begin, i64 end) const;
  /// Copies bytes [offset, offset + into.size()) of the tensor's data. Thread-safe.
  void read(const TensorInfo& tensor, i64 offset, std::span<std::byte> into) const;
  bool read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const override;

 private:
  void widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const override;
  struct State;
  std::unique_ptr<State> state_;
};

class SafetensorsWriter {
 public:
  /// Selects how the writer opens its file. `created`: the writer creates the file. `joined`: the writer opens
  /// a file that another process has created with equal tensors and metadata; each process writes its part.
  enum class Mode { created, joined };
  /// Creates `path` with a header for `tensors`. The caller sets their names, dtypes and shapes; the
  /// constructor fills in `begin` and `end`, in the order of `tensors`. The header lists the tensors in
  /// that order and is padded with spaces to a multiple of 8 bytes, so equal input gives equal bytes.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata = {}, Mode mode = Mode::created);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  const std::vector<TensorInfo>& tensors() const;
  /// Writes bytes at `offset` of the tensor's data. The order of calls is free, but each byte must be written exactly once. Only the last
  /// few MiB that were written stay in the page cache. Thread-safe.
  void write(const TensorInfo& tensor, i64 offset, std::span<const std::byte> from);
  /// Checks that as many bytes were written as the header says, then fsyncs and closes the file. If finish() is not called, the destructor
  /// removes the file, provided that this writer created it.
  void finish();
  /// Finishes this process's part of a file that several processes write: fsyncs and closes the file. Returns the number of bytes that this
  /// process wrote; over all processes they must add up to data_bytes().
  i64 finish_part();
  i64 data_bytes() const;
  i64 file_bytes() const;
  /// Returns the partial checksums (ChecksumSums::sums) of what this process
  /// wrote. The process that created the file counts as the writer of the header.
  std::vector<u32> checksum_sums() const;

 private:
  void remove_unfinished() noexcept;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace spillway::data

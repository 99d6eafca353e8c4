#include "data/safetensors/safetensors.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "data/files/file.h"
#include "data/files/write_behind.h"
#include "data/safetensors/safetensors_header.h"

namespace spillway::data {
namespace {

i64 header_bytes(const CheckedFile& file) {
  if (file.size_bytes() < kSafetensorsLengthBytes) {
    reject_safetensors(file.path(),
                       fmt::format("expected a file of at least {} bytes, got {}", kSafetensorsLengthBytes, file.size_bytes()));
  }
  std::array<std::byte, kSafetensorsLengthBytes> raw{};
  file.read(0, raw);
  u64 length = 0;
  for (size_t i = raw.size(); i-- > 0;) length = length << 8 | std::to_integer<u64>(raw[i]);
  if (length > static_cast<u64>(kSafetensorsHeaderLimit)) {
    reject_safetensors(file.path(), fmt::format("a header of {} bytes is above the format's limit of {}", length, kSafetensorsHeaderLimit));
  }
  if (static_cast<i64>(length) > file.size_bytes() - kSafetensorsLengthBytes) {
    reject_safetensors(file.path(),
                       fmt::format("expected a header of {} bytes, but the whole file has only {} bytes", length, file.size_bytes()));
  }
  if (length == 0) reject_safetensors(file.path(), "the header is empty");
  return static_cast<i64>(length);
}

void check_range(const std::filesystem::path& path, const TensorInfo& tensor, i64 offset, size_t bytes) {
  if (offset < 0 || offset > tensor.bytes() || static_cast<i64>(bytes) > tensor.bytes() - offset) {
    throw Error(ErrorCode::bug, fmt::format("[safetensors] {}, tensor {}: bytes {} to {} are outside the tensor's {} bytes", path.string(),
                                            in_quotes(tensor.name), offset, offset + static_cast<i64>(bytes), tensor.bytes()));
  }
}

}  // namespace

struct SafetensorsReader::State {
  CheckedFile file;
  i64 data_begin = 0;
  std::map<std::string, std::string> metadata;
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path, std::optional<FileChecksums> checksums) {
  CheckedFile file(path, std::move(checksums));
  const i64 length = header_bytes(file), data_begin = kSafetensorsLengthBytes + length;
  std::string text(static_cast<size_t>(length), ' ');
  file.read(kSafetensorsLengthBytes, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader header = parse_safetensors_header(text, file.size_bytes() - data_begin, path.string());
  TensorIndex index("[safetensors] " + path.string());
  for (TensorInfo& tensor : header.tensors) index.add(std::move(tensor));
  hold(std::move(index));
  state_ = std::make_unique<State>(State{std::move(file), data_begin, std::move(header.metadata)});
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader::~SafetensorsReader() = default;

const std::filesystem::path& SafetensorsReader::path() const { return state_->file.path(); }
const std::map<std::string, std::string>& SafetensorsReader::metadata() const { return state_->metadata; }

bool SafetensorsReader::read_bytes(const TensorInfo& tensor, i64 begin, std::span<std::byte> out) const {
  read(tensor, begin * size_of(tensor.dtype), out);
  return true;
}

void SafetensorsReader::read(const TensorInfo& tensor, i64 offset, std::span<std::byte> into) const {
  check_range(path(), tensor, offset, into.size());
  try {
    state_->file.read(state_->data_begin + tensor.begin + offset, into);
  } catch (const Damaged& e) {
    throw Damaged(path(), e.begin(), e.end(), describe(e.begin(), e.end()));
  }
}

std::string SafetensorsReader::describe(i64 begin, i64 end) const {
  const i64 data = state_->data_begin;
  std::string text = begin < data ? "header" : "";
  const TensorInfo *first = nullptr, *last = nullptr;
  for (const TensorInfo& t : tensors()) {
    if (t.bytes() == 0 || data + t.end <= begin || data + t.begin >= end) continue;
    first = first ? first : &t;
    last = &t;
  }
  if (!first) return text;
  if (!text.empty()) text += " and ";
  if (first == last) return text + "tensor " + in_quotes(first->name);
  return text + "tensors " + in_quotes(first->name) + " to " + in_quotes(last->name);
}

struct SafetensorsWriter::State {
  State(File opened, i64 begin, std::vector<TensorInfo> infos, bool joined)
      : file(std::move(opened)), data_begin(begin), tensors(std::move(infos)), finished(joined), checksums(file_bytes()) {}
  i64 data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
  i64 file_bytes() const { return data_begin + data_bytes(); }

  File file;
  i64 data_begin = 0;
  std::vector<TensorInfo> tensors;
  std::atomic<i64> written_bytes{0};
  bool finished;  // true if the destructor must not remove the file: it is complete, or another process created it
  ChecksumSums checksums;
  WriteBehind behind{file};

  void write(i64 offset, std::span<const std::byte> from);
};

void SafetensorsWriter::State::write(i64 offset, std::span<const std::byte> from) {
  checksums.add(offset, from);
  file.write(offset, from);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata, Mode mode) {
  i64 at = 0;
  std::set<std::string> names{"__metadata__"};
  for (TensorInfo& t : tensors) {
    if (!names.insert(t.name).second) throw Error(ErrorCode::bug, "[safetensors] the tensor name " + in_quotes(t.name) + " is used twice");
    t.begin = at;
    t.end = at += t.shape.elems() * size_of(t.dtype);
  }
  const std::string text = write_safetensors_header({tensors, metadata});
  const auto length = static_cast<i64>(text.size());
  if (length > kSafetensorsHeaderLimit) {
    reject_safetensors(
        path, fmt::format("a header of {} bytes is above the format's limit of {}: write several files", length, kSafetensorsHeaderLimit));
  }
  const bool created = mode == Mode::created;
  File file = created ? File::create(path) : File::open_to_write(path);
  state_ = std::make_unique<State>(std::move(file), kSafetensorsLengthBytes + length, std::move(tensors), !created);
  if (!created) return;
  std::array<std::byte, kSafetensorsLengthBytes> raw{};
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(static_cast<u64>(length) >> (8 * i));
  try {
    state_->file.reserve(file_bytes());
    state_->write(0, raw);
    state_->write(kSafetensorsLengthBytes, std::as_bytes(std::span(text)));
  } catch (...) {
    remove_unfinished();
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() { remove_unfinished(); }

void SafetensorsWriter::remove_unfinished() noexcept {
  std::error_code ignored;
  if (!state_->finished) std::filesystem::remove(state_->file.path(), ignored);
}

const std::vector<TensorInfo>& SafetensorsWriter::tensors() const { return state_->tensors; }

void SafetensorsWriter::write(const TensorInfo& tensor, i64 offset, std::span<const std::byte> from) {
  check_range(state_->file.path(), tensor, offset, from.size());
  const i64 begin = state_->data_begin + tensor.begin + offset;
  state_->write(begin, from);
  state_->behind.wrote(begin, begin + std::ssize(from));
  state_->written_bytes += static_cast<i64>(from.size());
}

i64 SafetensorsWriter::data_bytes() const { return state_->data_bytes(); }
i64 SafetensorsWriter::file_bytes() const { return state_->file_bytes(); }
std::vector<u32> SafetensorsWriter::checksum_sums() const { return state_->checksums.sums(); }

void SafetensorsWriter::finish() {
  if (state_->written_bytes != data_bytes()) {
    throw Error(ErrorCode::bug, fmt::format("[safetensors] {}: expected {} bytes of data, but {} were written",
                                            state_->file.path().string(), data_bytes(), state_->written_bytes.load()));
  }
  finish_part();
}

i64 SafetensorsWriter::finish_part() {
  state_->file.sync();
  state_->file.close();
  state_->finished = true;
  return state_->written_bytes;
}

}  // namespace spillway::data

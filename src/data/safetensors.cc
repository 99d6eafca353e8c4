#include "data/safetensors.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <bit>
#include <deque>
#include <limits>
#include <mutex>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "data/file.h"
#include "data/safetensors_header.h"

namespace spillway::data {
namespace {

constexpr i64 kSendBytes = kMiB, kWriteBehindBytes = 16 * kMiB;

i64 header_bytes(const File& file) {
  if (file.size_bytes() < kSafetensorsLengthBytes) {
    reject_safetensors(file.path(), fmt::format("expected at least {} bytes, got {}", kSafetensorsLengthBytes, file.size_bytes()));
  }
  std::array<std::byte, kSafetensorsLengthBytes> raw{};
  file.read(0, raw);
  u64 length = 0;
  for (size_t i = raw.size(); i-- > 0;) length = length << 8 | std::to_integer<u64>(raw[i]);
  if (length > static_cast<u64>(kSafetensorsHeaderLimit)) {
    reject_safetensors(file.path(), fmt::format("a header of {} bytes is above the format's limit of {}", length, kSafetensorsHeaderLimit));
  }
  if (static_cast<i64>(length) > file.size_bytes() - kSafetensorsLengthBytes) {
    reject_safetensors(file.path(), fmt::format("expected a header of {} bytes, but the file has {} in all", length, file.size_bytes()));
  }
  if (length == 0) reject_safetensors(file.path(), "the header is empty");
  return static_cast<i64>(length);
}

void check_range(const std::filesystem::path& path, const TensorInfo& tensor, i64 offset, size_t bytes) {
  if (offset < 0 || offset > tensor.bytes() || static_cast<i64>(bytes) > tensor.bytes() - offset) {
    throw Error(ErrorCode::bug, fmt::format("[safetensors] {}, tensor {}: bytes {} to {} leave its {} bytes", path.string(),
                                            in_quotes(tensor.name), offset, offset + static_cast<i64>(bytes), tensor.bytes()));
  }
}

}  // namespace

struct SafetensorsReader::State {
  File file;
  i64 data_begin = 0;
  SafetensorsHeader header;
  std::unordered_map<std::string, size_t> index;
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) {
  File file = File::open(path);
  const i64 length = header_bytes(file), data_begin = kSafetensorsLengthBytes + length;
  std::string text(static_cast<size_t>(length), ' ');
  file.read(kSafetensorsLengthBytes, std::as_writable_bytes(std::span(text)));
  SafetensorsHeader header = parse_safetensors_header(text, file.size_bytes() - data_begin, path.string());
  state_ = std::make_unique<State>(State{std::move(file), data_begin, std::move(header), {}});
  for (size_t i = 0; i < tensors().size(); ++i) state_->index.emplace(tensors()[i].name, i);
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader::~SafetensorsReader() = default;

const std::filesystem::path& SafetensorsReader::path() const { return state_->file.path(); }
const std::vector<TensorInfo>& SafetensorsReader::tensors() const { return state_->header.tensors; }
const std::map<std::string, std::string>& SafetensorsReader::metadata() const { return state_->header.metadata; }

const TensorInfo* SafetensorsReader::find(const std::string& name) const {
  const auto entry = state_->index.find(name);
  return entry == state_->index.end() ? nullptr : &tensors()[entry->second];
}

void SafetensorsReader::read(const TensorInfo& tensor, i64 offset, std::span<std::byte> into) const {
  check_range(path(), tensor, offset, into.size());
  state_->file.read(state_->data_begin + tensor.begin + offset, into);
}

struct SafetensorsWriter::State {
  struct Range {
    i64 begin = 0, end = 0;
    i64 bytes() const { return end - begin; }
  };
  File file;
  i64 data_begin = 0;
  std::vector<TensorInfo> tensors;
  std::atomic<i64> written_bytes{0};
  bool finished = false;  // or not ours to remove
  std::mutex mutex;
  Range collected;
  std::deque<Range> on_the_way;
  i64 on_the_way_bytes = 0;

  void write_behind(Range range);
};

// Neighbouring writes are sent to the disk together and waited for a little later: the page cache holds little of a large file, and closing
// it finds little to do.
void SafetensorsWriter::State::write_behind(Range range) {
  Range next;
  std::vector<Range> oldest;
  {
    std::lock_guard lock(mutex);
    if (range.begin == collected.end && collected.bytes() < kSendBytes) {
      collected.end = range.end;
      return;
    }
    next = std::exchange(collected, range);
    on_the_way.push_back(next);
    on_the_way_bytes += next.bytes();
    while (on_the_way_bytes > kWriteBehindBytes) {
      oldest.push_back(on_the_way.front());
      on_the_way_bytes -= oldest.back().bytes();
      on_the_way.pop_front();
    }
  }
  if (next.bytes() > 0) file.send(next.begin, next.bytes());
  for (const Range& r : oldest) file.send_and_drop(r.begin, r.bytes());
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata, Mode mode) {
  i64 at = 0;
  std::set<std::string> names{"__metadata__"};
  for (TensorInfo& t : tensors) {
    if (!names.insert(t.name).second) throw Error(ErrorCode::bug, "[safetensors] the tensor name " + in_quotes(t.name) + " is taken");
    t.begin = at;
    t.end = at += t.shape.elems() * size_of(t.dtype);
  }
  const std::string text = write_safetensors_header({tensors, metadata});
  const auto length = static_cast<i64>(text.size());
  if (length > kSafetensorsHeaderLimit) {
    reject_safetensors(path,
           fmt::format("a header of {} bytes is above the format's limit of {}: write several files", length, kSafetensorsHeaderLimit));
  }
  const bool created = mode == Mode::created;
  File file = created ? File::create(path) : File::open_to_write(path);
  state_.reset(new State{std::move(file), kSafetensorsLengthBytes + length, std::move(tensors), {}, !created, {}, {}, {}, 0});
  if (!created) return;
  std::array<std::byte, kSafetensorsLengthBytes> raw{};
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(static_cast<u64>(length) >> (8 * i));
  try {
    state_->file.reserve(state_->data_begin + at);
    state_->file.write(0, raw);
    state_->file.write(kSafetensorsLengthBytes, std::as_bytes(std::span(text)));
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
  state_->file.write(begin, from);
  state_->write_behind({begin, begin + static_cast<i64>(from.size())});
  state_->written_bytes += static_cast<i64>(from.size());
}

i64 SafetensorsWriter::data_bytes() const { return state_->tensors.empty() ? 0 : state_->tensors.back().end; }

void SafetensorsWriter::finish() {
  if (state_->written_bytes != data_bytes()) {
    throw Error(ErrorCode::bug, fmt::format("[safetensors] {}: expected {} bytes of data, {} were written", state_->file.path().string(),
                                            data_bytes(), state_->written_bytes.load()));
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

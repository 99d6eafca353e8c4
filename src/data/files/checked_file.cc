#include "data/files/checked_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "base/crc32c.h"

namespace spillway::data {
namespace {

constexpr size_t kKeptBlocks = 8;  // the number of blocks in the cache: enough to read several tensors of a file at one time

i64 block_end(i64 block, i64 file_bytes) { return std::min((block + 1) * kChecksumBlockBytes, file_bytes); }

}  // namespace

ChecksumSums::ChecksumSums(i64 bytes) : bytes_(bytes), sums_(static_cast<size_t>(FileChecksums::block_count(bytes))) {}

void ChecksumSums::add(i64 offset, std::span<const std::byte> written) {
  while (!written.empty()) {
    const i64 block = offset / kChecksumBlockBytes, end = block_end(block, bytes_);
    const auto piece = written.first(static_cast<size_t>(std::min(static_cast<i64>(written.size()), end - offset)));
    offset += static_cast<i64>(piece.size());
    sums_[static_cast<size_t>(block)] ^= crc32c_share(piece, end - offset);
    written = written.subspan(piece.size());
  }
}

std::vector<u32> ChecksumSums::sums() const { return {sums_.begin(), sums_.end()}; }

FileChecksums ChecksumSums::checksums(i64 bytes, std::span<const u32> sums) {
  FileChecksums checksums{bytes, {sums.begin(), sums.end()}};
  for (i64 block = 0; block < std::ssize(checksums.blocks); ++block) {
    checksums.blocks[static_cast<size_t>(block)] ^= crc32c_of_zeros(block_end(block, bytes) - block * kChecksumBlockBytes);
  }
  return checksums;
}

Damaged::Damaged(const std::filesystem::path& folder, const std::string& wrong)
    : Error(ErrorCode::data, fmt::format("[checkpoint] {}. Use another checkpoint (train --resume auto takes the newest complete one) or a "
                                         "copy of this one; inspect --verify {} lists everything that is damaged",
                                         wrong, folder.string())),
      wrong_(wrong) {}

Damaged::Damaged(const std::filesystem::path& path, i64 begin, i64 end, const std::string& within)
    : Damaged(parent_of(path), fmt::format("{} is damaged: bytes {} to {}{} are not those that were saved", path.string(), begin, end,
                                           within.empty() ? "" : " (" + within + ")")) {
  begin_ = begin, end_ = end;
}

struct CheckedFile::State {
  struct Block {
    i64 number = -1;
    u64 used = 0;
    std::vector<std::byte> bytes;
  };
  File file;
  std::optional<FileChecksums> checksums;
  std::mutex mutex;
  std::array<Block, kKeptBlocks> kept;
  u64 uses = 0;

  void read_block(i64 number, std::span<std::byte> into) const;
  const Block& block(i64 number);
};

void CheckedFile::State::read_block(i64 number, std::span<std::byte> into) const {
  const i64 begin = number * kChecksumBlockBytes;
  file.read(begin, into);
  if (crc32c(into) != checksums->blocks[static_cast<size_t>(number)]) throw Damaged(file.path(), begin, begin + std::ssize(into));
}

const CheckedFile::State::Block& CheckedFile::State::block(i64 number) {
  const auto known = std::ranges::find(kept, number, &Block::number);
  Block& block = known != kept.end() ? *known : *std::ranges::min_element(kept, {}, &Block::used);
  block.used = ++uses;
  if (known != kept.end()) return block;
  const i64 begin = number * kChecksumBlockBytes, end = block_end(number, checksums->bytes);
  block.number = -1;
  block.bytes.resize(static_cast<size_t>(end - begin));
  read_block(number, block.bytes);
  block.number = number;
  return block;
}

CheckedFile::CheckedFile(const std::filesystem::path& path, std::optional<FileChecksums> checksums)
    : state_(new State{File::open(path), std::move(checksums), {}, {}, 0}) {
  if (!state_->checksums || state_->checksums->bytes == size_bytes()) return;
  const i64 saved = state_->checksums->bytes;
  throw Damaged(path, std::min(saved, size_bytes()), std::max(saved, size_bytes()),
                fmt::format("it was saved with {} bytes and now has {}", saved, size_bytes()));
}

CheckedFile::CheckedFile(CheckedFile&&) noexcept = default;
CheckedFile::~CheckedFile() = default;

const std::filesystem::path& CheckedFile::path() const { return state_->file.path(); }
i64 CheckedFile::size_bytes() const { return state_->file.size_bytes(); }

void CheckedFile::read(i64 offset, std::span<std::byte> into) const {
  const i64 end = offset + static_cast<i64>(into.size());
  if (!state_->checksums || end > state_->checksums->bytes) return state_->file.read(offset, into);
  // Whole blocks are read directly into the caller's buffer, without locking the cache. If only a part of a block is wanted, the block is
  // read through the cache, under the lock.
  while (!into.empty()) {
    const i64 number = offset / kChecksumBlockBytes, whole = block_end(number, state_->checksums->bytes) - offset;
    if (offset % kChecksumBlockBytes == 0 && std::ssize(into) >= whole) {
      state_->read_block(number, into.first(static_cast<size_t>(whole)));
      into = into.subspan(static_cast<size_t>(whole));
      offset += whole;
      continue;
    }
    const std::lock_guard lock(state_->mutex);
    const auto& block = state_->block(number);
    const auto from = std::span(block.bytes).subspan(static_cast<size_t>(offset % kChecksumBlockBytes));
    const size_t count = std::min(from.size(), into.size());
    std::memcpy(into.data(), from.data(), count);
    into = into.subspan(count);
    offset += static_cast<i64>(count);
  }
}

}  // namespace spillway::data

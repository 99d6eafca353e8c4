#include "offload/striped_blob.h"

#include <fmt/format.h>

#include <utility>

#include "base/crc32c.h"
#include "base/error.h"

namespace spillway::offload {
namespace {

constexpr auto kNvme = static_cast<size_t>(Tier::nvme);

std::span<const std::byte> tile_of(std::span<const std::byte> bytes, i64 number, i64 tile_bytes) {
  return bytes.subspan(static_cast<size_t>(number * tile_bytes), static_cast<size_t>(tile_bytes));
}

}  // namespace

StripedBlob::StripedBlob(BlobHome& home, std::string what, i64 begin, i64 first_tile, i64 tile_bytes, bool persistent,
                         std::shared_ptr<TileChecksums> checksums)
    : Blob(std::move(what), {first_tile, first_tile + checksums->tiles()}, tile_bytes, checksums->slots()),
      home_(home),
      begin_(begin),
      persistent_(persistent),
      checksums_(std::move(checksums)) {}

i64 StripedBlob::place(i64 tile, u64 generation) const {
  return begin_ + static_cast<i64>(generation % static_cast<u64>(slots_)) * bytes() + (tile - held_.begin) * tile_bytes_;
}

Event StripedBlob::read(TileRange range, u64 generation, std::span<std::byte> into, const ReadOptions& options) {
  check(range, std::ssize(into));
  Event event = home_.files.submit(false, place(range.begin, generation), into, options.priority);
  home_.traffic.reads(options.for_save)[kNvme] += std::ssize(into);
  return event;
}

Event StripedBlob::write(TileRange range, u64 generation, std::span<const std::byte> from) {
  check(range, std::ssize(from));
  for (i64 tile = range.begin; tile < range.end; ++tile) {
    if (checksums_->stamped(tile - held_.begin, generation)) continue;
    throw Error(ErrorCode::bug,
                fmt::format("[blob] tile {} of {} is written for generation {} without a checksum", tile, what_, generation));
  }
  // A request has one non-const pointer for reads and writes alike. A write request only reads through it.
  const std::span<std::byte> buffer(const_cast<std::byte*>(from.data()), from.size());
  Event event = home_.files.submit(true, place(range.begin, generation), buffer, Priority::normal);
  home_.traffic.written_bytes[kNvme] += std::ssize(from);
  return event;
}

void StripedBlob::stamp(TileRange range, u64 generation, std::span<const std::byte> from) {
  check(range, std::ssize(from));
  check_uncommitted(generation);
  for (i64 i = 0; i < range.count(); ++i)
    checksums_->stamp(range.begin + i - held_.begin, generation, crc32c(tile_of(from, i, tile_bytes_)));
}

void StripedBlob::check_uncommitted(u64 generation) const {
  const u64 committed = home_.committed.load();
  const auto slots = static_cast<u64>(slots_);
  if (!persistent_ || committed == kNeverCommitted || generation % slots != committed % slots) return;
  throw Error(ErrorCode::bug,
              fmt::format("[blob] generation {} of {} would be written over the committed generation {}", generation, what_, committed));
}

void StripedBlob::verify(TileRange range, u64 generation, std::span<const std::byte> read) {
  check(range, std::ssize(read));
  for (i64 i = 0; i < range.count(); ++i) {
    const i64 tile = range.begin + i;
    if (!checksums_->readable(tile - held_.begin, generation)) {
      throw Error(ErrorCode::bug, fmt::format("[blob] tile {} of {} was never written for generation {}", tile, what_, generation));
    }
    const u32 expected = checksums_->crc(tile - held_.begin, generation), got = crc32c(tile_of(read, i, tile_bytes_));
    if (got != expected) spoilt(tile, generation, expected, got);
  }
}

bool StripedBlob::is_committed(u64 generation) const {
  const u64 committed = home_.committed.load();
  return persistent_ && committed != kNeverCommitted && (slots_ == 1 || generation == committed);
}

void StripedBlob::spoilt(i64 tile, u64 generation, u32 expected, u32 got) const {
  throw Spoilt(fmt::format("[checksum] tile {} of {}, generation {}, at {}: expected CRC32C {:08x}, got {:08x}", tile, what_, generation,
                           home_.files.place(place(tile, generation)), expected, got),
               fmt::format("the drive or its connection corrupts data; check the kernel's log (dmesg) and the drive's health (smartctl), "
                           "then run the same command again: the run continues from the last {}",
                           is_committed(generation) ? "checkpoint; give another --nvme path"
                                                    : "complete step, or with another --nvme path from the last checkpoint"));
}

}  // namespace spillway::offload

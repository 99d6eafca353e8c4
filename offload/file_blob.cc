#include <fmt/format.h>

#include "base/error.h"
#include "offload/blob.h"

namespace spillway::offload {
namespace {

class FileBlob final : public Blob {
 public:
  FileBlob(IoEngine& engine, const File& file, const std::string& what, i64 offset, i64 tiles, i64 tile_bytes, int slots, Traffic& traffic)
      : Blob(what, tiles, tile_bytes, slots), engine_(engine), file_(file), offset_(offset), traffic_(traffic) {}

  Tier tier() const override { return Tier::nvme; }

  Event read(TileRange range, u64 generation, std::span<std::byte> into, Priority priority) override {
    check(range, std::ssize(into));
    Event event = engine_.submit({&file_, false, at(range, generation), std::ssize(into), into.data(), priority});
    traffic_.read_bytes[kNvme] += std::ssize(into);
    return event;
  }

  Event write(TileRange range, u64 generation, std::span<const std::byte> from) override {
    check(range, std::ssize(from));
    auto* buffer = const_cast<std::byte*>(from.data());  // a request has one pointer for both ways; a write only reads it
    Event event = engine_.submit({&file_, true, at(range, generation), std::ssize(from), buffer});
    traffic_.written_bytes[kNvme] += std::ssize(from);
    return event;
  }

  std::span<std::byte> view(TileRange, u64) override { return {}; }

 private:
  static constexpr auto kNvme = static_cast<size_t>(Tier::nvme);
  i64 at(TileRange range, u64 generation) const {
    return offset_ + static_cast<i64>(generation % static_cast<u64>(slots_)) * bytes() + range.begin * tile_bytes_;
  }

  IoEngine& engine_;
  const File& file_;
  const i64 offset_;
  Traffic& traffic_;
};

}  // namespace

std::unique_ptr<Blob> make_file_blob(IoEngine& engine, const File& file, const std::string& what, i64 offset, i64 tiles, i64 tile_bytes,
                                     int slots, Traffic& traffic) {
  // Demanded of every file, so that a layout which direct I/O cannot serve fails on a tmpfs too.
  const bool aligned = offset % kDirectAlignment == 0 && tile_bytes % kDirectAlignment == 0;
  const bool sensible = offset >= 0 && tiles >= 0 && tile_bytes > 0 && slots >= 1;
  if (!sensible || !aligned || offset + slots * tiles * tile_bytes > file.bytes()) {
    throw Error(ErrorCode::bug,
                fmt::format("[blob] {}: {} slots of {} tiles of {} bytes at offset {} do not lie in {} ({} bytes) at multiples of {}", what,
                            slots, tiles, tile_bytes, offset, file.path().string(), file.bytes(), kDirectAlignment));
  }
  return std::make_unique<FileBlob>(engine, file, what, offset, tiles, tile_bytes, slots, traffic);
}

}  // namespace spillway::offload

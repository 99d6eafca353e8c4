#include "offload/store_files.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/error.h"

namespace spillway::offload {
namespace {

std::vector<u32> weights_of(const StoreDescription& description) {
  std::vector<u32> weights;
  for (const StripePath& path : description.paths) weights.push_back(path.weight);
  return weights;
}

}  // namespace

void check(const StoreDescription& description) {
  const Stripes sensible(weights_of(description), description.stripe_unit_bytes, description.data_bytes);
  require(description.persistent_tiles >= 0, "[store] expected the number of persistent tiles to be at least 0");
  require(description.passing_bytes >= 0 && description.passing_bytes <= description.data_bytes,
          "[store] expected the temporary data to be a part of the store's data");
  require(std::ssize(description.run_id) <= kMaxRunIdBytes, "[store] expected a run id of at most 255 bytes");
  if (std::ssize(description.boot_id) > kMaxBootIdBytes)
    throw Error(ErrorCode::bug, fmt::format("[store] expected a boot id (/proc/sys/kernel/random/boot_id) of at most {} bytes, got {}",
                                            kMaxBootIdBytes, description.boot_id.size()));
  std::set<std::filesystem::path> files;
  for (const StripePath& path : description.paths) {
    if (files.insert(std::filesystem::absolute(path.folder / kStoreFile).lexically_normal()).second) continue;
    throw Error(ErrorCode::usage,
                fmt::format("[store] {} is given twice: expected a different folder for each --nvme path", path.folder.string()));
  }
}

i64 store_bytes(const StoreDescription& description) {
  i64 bytes = description.data_bytes;
  for (i64 f = 0; f < std::ssize(description.paths); ++f) bytes += data_offset(description.persistent_tiles, f);
  return bytes;
}

StoreFiles::StoreFiles(IoEngine& engine, std::vector<ScratchFile> files, Stripes stripes, u64 store_id, i64 persistent_tiles)
    : engine_(engine), files_(std::move(files)), stripes_(std::move(stripes)), store_id_(store_id), persistent_tiles_(persistent_tiles) {}

i64 StoreFiles::bytes() const {
  i64 bytes = 0;
  for (const ScratchFile& file : files_) bytes += file.bytes();
  return bytes;
}

void StoreFiles::fit() {
  for (i64 f = 0; f < stripes_.files(); ++f)
    files_[static_cast<size_t>(f)].resize(data_offset(persistent_tiles_, f) + stripes_.file_data_bytes(f));
}

Event StoreFiles::submit(bool write, i64 begin, std::span<std::byte> buffer, Priority priority) {
  std::vector<Event> parts;
  std::byte* at = buffer.data();
  for (const Stripes::Extent& extent : stripes_.extents(begin, std::ssize(buffer))) {
    const ScratchFile& file = files_[static_cast<size_t>(extent.file)];
    parts.push_back(engine_.submit({&file, write, offset_of(extent), extent.bytes, at, priority}));
    at += extent.bytes;
  }
  return Event::all(std::move(parts));
}

std::string StoreFiles::place(i64 begin) const {
  const Stripes::Extent extent = stripes_.extents(begin, 1).front();
  return fmt::format("offset {} of {}", offset_of(extent), files_[static_cast<size_t>(extent.file)].path().string());
}

void StoreFiles::read(i64 offset, std::span<std::byte> into) {
  engine_.submit({&files_.front(), false, offset, std::ssize(into), into.data(), Priority::urgent}).wait();
}

void StoreFiles::write(i64 offset, std::span<const std::byte> from) {
  engine_.submit({&files_.front(), true, offset, std::ssize(from), const_cast<std::byte*>(from.data()), Priority::urgent}).wait();
}

void StoreFiles::flush() {
  for (const ScratchFile& file : files_) engine_.flush(file);
}

}  // namespace spillway::offload

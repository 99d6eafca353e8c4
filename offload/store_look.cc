#include "offload/store_look.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <span>
#include <system_error>

#include "base/crc32c.h"
#include "base/error.h"
#include "offload/commit_log.h"
#include "offload/owner_file.h"

namespace spillway::offload {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void look_failed(const fs::path& file, const char* call, int error_number) {
  throw Error(ErrorCode::io, fmt::format("[store] {} of {} failed: {} (errno {}); check the path or give another --nvme path", call,
                                         file.string(), std::generic_category().message(error_number), error_number));
}

// Reads from the start of the file until `into` is full or the file ends.
void read_front(int descriptor, const fs::path& file, std::span<std::byte> into) {
  for (size_t at = 0; at < into.size();) {
    const ssize_t n = ::pread(descriptor, into.data() + at, into.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) look_failed(file, "read", errno);
    if (n == 0) return;
    at += static_cast<size_t>(n);
  }
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Returns true if the file holds nothing but zeros. SEEK_DATA skips space that was reserved but never written. Some filesystems (NFS 3) do
// not know where such space is. If more than kMostBytes of zeros would have to be read there, that would take too long, and the file does
// not count as blank.
bool is_blank(int descriptor, const fs::path& file) {
  constexpr i64 kMostBytes = 64 * kMiB;
  std::byte part[64 * kKiB];
  i64 seen_bytes = 0;
  for (off_t at = 0; (at = ::lseek(descriptor, at, SEEK_DATA)) >= 0; at += sizeof part) {
    const ssize_t n = ::pread(descriptor, part, sizeof part, at);
    if (n < 0) look_failed(file, "read", errno);
    seen_bytes += n;
    if (!is_zero({part, static_cast<size_t>(n)}) || seen_bytes > kMostBytes) return false;
  }
  return errno == ENXIO;
}

}  // namespace

u32 crc_of(const StoreHeader& header) { return crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(StoreHeader, crc))); }

bool is_whole(const StoreHeader& header) {
  return std::memcmp(header.magic, kStoreMagic, sizeof kStoreMagic) == 0 && crc_of(header) == header.crc;
}

bool Found::holds_no_commit(const std::string& boot_id) const {
  if (kind != Kind::store || header.version != kStoreVersion || header.stripe != 0) return false;
  const bool durable = header.durability == static_cast<u32>(Durability::step);
  return std::ranges::all_of(superblocks, [&](const Superblock& superblock) {
    const bool worthless = !durable && superblock.store_id == header.store_id && is_whole(superblock) && !written_in(superblock, boot_id);
    return worthless || is_blank(superblock);
  });
}

Found look(const fs::path& folder) {
  const fs::path file = folder / kStoreFile;
  const Descriptor open_file(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  Found found;
  if (open_file.get() < 0 && errno == ENOENT) return found;
  if (open_file.get() < 0) look_failed(file, "open", errno);
  const int number = open_file.get();
  // switches read-ahead off, because on ext4 SEEK_DATA counts what was read ahead as data
  ::posix_fadvise(number, 0, 0, POSIX_FADV_RANDOM);
  struct stat info {};
  if (::fstat(number, &info) != 0) look_failed(file, "stat", errno);
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::usage, "[store] expected " + file.string() + " to be a file");
  alignas(StoreHeader) std::byte front[(1 + kSuperblocks) * kPageBytes]{};
  read_front(number, file, front);
  std::memcpy(&found.header, front, sizeof found.header);
  std::memcpy(&found.superblocks, front + kSuperblockOffset, sizeof found.superblocks);
  found.kind = is_whole(found.header)                     ? Found::Kind::store
               : is_zero(front) && is_blank(number, file) ? Found::Kind::blank
                                                          : Found::Kind::other;
  return found;
}

void refuse_newer(const StoreHeader& header, const std::string& name) {
  if (header.version <= kStoreVersion) return;
  throw Error(ErrorCode::data, fmt::format("[store] {} has format {}, newer than this program (format {}): continue with the newer "
                                           "program, or delete the run's files with spillway doctor --reclaim",
                                           name, header.version, kStoreVersion));
}

std::optional<StoreHeader> whole_header(const fs::path& folder) {
  StoreHeader header{};
  std::ifstream file(folder / kStoreFile, std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  return file && is_whole(header) ? std::optional(header) : std::nullopt;
}

std::vector<u32> kept_weights(const fs::path& folder) {
  const std::optional<StoreHeader> header = whole_header(folder);
  if (!header || header->version != kStoreVersion || header->stripes > kMaxStripes) return {};
  std::vector<u32> weights(header->weights, header->weights + header->stripes);
  if (std::ranges::any_of(weights, [](u32 weight) { return weight < 1 || weight > kMaxWeight; })) weights.clear();
  return weights;
}

}  // namespace spillway::offload

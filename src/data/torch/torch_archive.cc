#include "data/torch/torch_archive.h"

#include <fmt/format.h>
#include <zip.h>

#include "base/error.h"
#include "base/units.h"
#include "data/files/file.h"

namespace spillway::data {
namespace {

constexpr i64 kMostPickleBytes = 64 * kMiB;
constexpr std::string_view kPickle = "data.pkl";

// Returns true for a file that torch.save of PyTorch before 1.6 wrote: a sequence of pickles, of which the first is a magic number.
bool is_of_old(const std::filesystem::path& path) {
  std::array<std::byte, 4> first{};
  const File file = File::open(path);
  if (file.size_bytes() < 4) return false;
  file.read(0, first);
  return first[0] == std::byte{0x80} && first[2] == std::byte{0x8a};
}

}  // namespace

void reject_torch(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[torch] {}: {}", path.string(), why));
}

// Opens the zip archive. The archive is the given range of the file, or the whole file if no range is given.
void TorchArchive::open(std::optional<Range> range) {
  const i64 bytes = File::open(path_).size_bytes();  // File::open throws with the reason if the file cannot be opened
  const Range all = range.value_or(Range{0, bytes});
  bytes_ = all.bytes;
  // libzip takes a length of 0 to mean "up to the end of the file", so an empty range is refused.
  if (all.begin < 0 || all.begin > bytes - all.bytes || (range && all.bytes <= 0))
    reject_torch(path_, fmt::format("expected {} bytes at offset {}, but the file has {} bytes", all.bytes, all.begin, bytes));
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_file_create(path_.c_str(), static_cast<zip_uint64_t>(all.begin), all.bytes, &error);
  if (source != nullptr) zip_ = zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
  const std::string why = zip_ == nullptr ? zip_error_strerror(&error) : "";
  if (zip_ == nullptr && source != nullptr) zip_source_free(source);
  zip_error_fini(&error);
  if (zip_ != nullptr) return;
  if (is_of_old(path_))
    reject_torch(path_, "the file was written by PyTorch before version 1.6: load it with torch.load and save it again with torch.save");
  reject_torch(path_, "expected a zip archive as torch.save writes it, got another file: " + why);
}

TorchArchive::TorchArchive(std::filesystem::path path, std::optional<Range> range) : path_(std::move(path)) {
  open(range);
  const zip_int64_t count = zip_get_num_entries(zip_, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* raw = zip_get_name(zip_, static_cast<zip_uint64_t>(i), ZIP_FL_ENC_RAW);
    const std::string name = raw == nullptr ? "" : raw;
    const size_t slash = name.find('/');
    if (slash == name.npos || name.substr(slash + 1) != kPickle) continue;
    folder_ = name.substr(0, slash + 1);
    return;
  }
  zip_discard(zip_);
  reject_torch(path_, fmt::format("expected a member <name>/{}, got a zip archive of something else", kPickle));
}

TorchArchive::~TorchArchive() { zip_discard(zip_); }

TorchArchive::Member TorchArchive::member(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const zip_int64_t index = zip_name_locate(zip_, (folder_ + name).c_str(), ZIP_FL_ENC_RAW);
  zip_stat_t found;
  if (index < 0 || zip_stat_index(zip_, static_cast<zip_uint64_t>(index), 0, &found) != 0)
    reject_torch(path_, "the archive has no member " + name);
  if ((found.valid & ZIP_STAT_SIZE) == 0 || (found.valid & ZIP_STAT_COMP_METHOD) == 0 || found.comp_method != ZIP_CM_STORE ||
      found.encryption_method != ZIP_EM_NONE)
    reject_torch(
        path_,
        fmt::format("expected the member {} to be uncompressed, as torch.save writes it, got another form: save the file again", name));
  // No member may be larger than the archive. Without this check a false size would not be
  // noticed, because the sizes of tensors are later checked only against the member's size.
  if ((found.valid & ZIP_STAT_COMP_SIZE) == 0 || found.size != found.comp_size || found.size > static_cast<u64>(bytes_))
    reject_torch(path_,
                 fmt::format("the zip directory says that member {} has {} bytes, which is more than the file holds: the file is damaged",
                             name, found.size));
  return {static_cast<u64>(index), static_cast<i64>(found.size)};
}

std::vector<std::byte> TorchArchive::pickle() const {
  const Member found = member(std::string(kPickle));
  if (found.bytes > kMostPickleBytes)
    reject_torch(path_, fmt::format("got {} bytes of {}, expected at most {}", found.bytes, kPickle, kMostPickleBytes));
  std::vector<std::byte> bytes(static_cast<size_t>(found.bytes));
  read(found, 0, bytes);
  return bytes;
}

TorchArchive::Member TorchArchive::storage(const std::string& key) const { return member("data/" + key); }

void TorchArchive::read(const Member& member, i64 offset, std::span<std::byte> into) const {
  const std::lock_guard lock(mutex_);
  zip_file_t* file = zip_fopen_index(zip_, member.index, 0);
  bool fine = file != nullptr && (offset == 0 || zip_fseek(file, offset, SEEK_SET) == 0);
  for (size_t at = 0; fine && at < into.size();) {
    const zip_int64_t got = zip_fread(file, into.data() + at, into.size() - at);
    fine = got > 0;
    at += fine ? static_cast<size_t>(got) : 0;
  }
  if (file != nullptr) zip_fclose(file);
  if (!fine)
    reject_torch(path_, fmt::format("cannot read {} bytes at offset {} of an archive member: the file is damaged", into.size(), offset));
}

}  // namespace spillway::data

#include "base/lfs_pointer.h"

#include "base/error.h"

namespace spillway {

void refuse_lfs_pointer(const std::string& file, std::string_view text) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/", kSize = "\nsize ";
  if (!text.starts_with(kBegin)) return;
  std::string bytes;
  if (const size_t at = text.find(kSize); at != text.npos) {
    const std::string_view rest = text.substr(at + kSize.size());
    bytes = rest.substr(0, rest.find_first_not_of("0123456789"));
  }
  throw Error(ErrorCode::data, "[lfs] " + file + " is only a Git LFS pointer file; the file itself" +
                                   (bytes.empty() ? "" : " of " + bytes.substr(0, 20) + " bytes") +
                                   " was not downloaded: run `git lfs pull` in its repository, then the same command again");
}

}  // namespace spillway

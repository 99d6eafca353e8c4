#include "base/path_error.h"

#include <fmt/format.h>

#include <string>

namespace spillway {

Error error_of(const std::filesystem::filesystem_error& error) {
  const auto is = [&](std::errc what) { return error.code() == what; };
  const char* cure = "check the path and the disk";
  bool data = true;
  if (is(std::errc::permission_denied) || is(std::errc::operation_not_permitted)) {
    cure = "check the permissions of the folders in the path (ls -ld), or ask their owner";
  } else if (is(std::errc::filename_too_long)) {
    cure = "file names may have 255 bytes and paths 4,096: use a shorter path";
  } else if (is(std::errc::too_many_symbolic_link_levels)) {
    cure = "symbolic links in the path form a cycle: check the links (ls -l)";
  } else if (is(std::errc::not_a_directory)) {
    cure = "a part of the path is a file, but a folder is expected";
  } else if (is(std::errc::no_such_file_or_directory)) {
    cure = "the path does not exist, or was removed in the meantime";
  } else {
    data = false;
  }
  const std::string second = error.path2().empty() ? "" : " and " + error.path2().string();
  return {data ? ErrorCode::data : ErrorCode::io, fmt::format("[path] cannot access {}{}: {} (errno {}): {}", error.path1().string(),
                                                              second, error.code().message(), error.code().value(), cure)};
}

}  // namespace spillway

#include "base/path_error.h"

#include <fmt/format.h>

#include <string>

namespace spillway {

Error error_of(const std::filesystem::filesystem_error& error) {
  const auto is = [&](std::errc what) { return error.code() == what; };
  const char* cure = "look at the path and at the disk";
  bool data = true;
  if (is(std::errc::permission_denied) || is(std::errc::operation_not_permitted)) {
    cure = "look at the permissions of the folders on the way to it (ls -ld), or ask their owner";
  } else if (is(std::errc::filename_too_long)) {
    cure = "names may have 255 bytes and paths 4,096: use shorter ones";
  } else if (is(std::errc::too_many_symbolic_link_levels)) {
    cure = "symbolic links on the way to it lead in a circle: look at them (ls -l)";
  } else if (is(std::errc::not_a_directory)) {
    cure = "something on the way to it is a file where a folder is expected";
  } else if (is(std::errc::no_such_file_or_directory)) {
    cure = "it is not there, or was removed meanwhile";
  } else {
    data = false;
  }
  const std::string second = error.path2().empty() ? "" : " and " + error.path2().string();
  return {data ? ErrorCode::data : ErrorCode::io, fmt::format("[path] cannot look at {}{}: {} (errno {}): {}", error.path1().string(),
                                                              second, error.code().message(), error.code().value(), cure)};
}

}  // namespace spillway

// Host is the program's view of the machine: files under /proc and /sys, and
// environment variables. It is a value, so tests can substitute their own.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/types.h"

namespace spillway::trainer {

/// Reads a whole file. Returns nothing if it cannot be read, is larger than 1 GiB, or is not a regular file: a folder, a device, or a named
/// pipe, whose writer might never come. Pipes that the shell has opened for this process (/dev/fd/63 of `<(command)`) are read to their
/// end.
std::optional<std::string> read_whole(const std::filesystem::path& path);

/// Returns the last `bytes` of a file, or all of a shorter one. Returns an empty string in the cases in which read_whole() returns nothing.
std::string read_tail(const std::filesystem::path& path, i64 bytes);

struct Host {
  std::filesystem::path root = "/";
  /// Returns the value of an environment variable, or nothing if it is not set or empty.
  std::function<std::optional<std::string>(const char* name)> environment = real_environment;

  static std::optional<std::string> real_environment(const char* name);
  std::optional<std::string> env(const char* name) const { return environment(name); }
  /// Reads the whole file at the path `absolute` below `root`; returns nothing if it cannot be read.
  std::optional<std::string> read(const std::string& absolute) const;
};

/// Returns the folder for data that is kept between runs of one user: $XDG_CACHE_HOME/spillway, or ~/.cache/spillway without that variable.
std::filesystem::path cache_folder(const Host& host);

}  // namespace spillway::trainer

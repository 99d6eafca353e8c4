// The machine as the program sees it: files under /proc and /sys, and environment variables. A value, so that tests bring their own.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/types.h"

namespace spillway::app {

/// A whole file; empty when it cannot be read, or is larger than a gigabyte, or no file at all: a folder, a device, a named pipe, for whose
/// writer one would wait for ever. What the shell has opened for this process (/dev/fd/63 of `<(command)`) is read to its end.
std::optional<std::string> read_whole(const std::filesystem::path& path);

/// The last `bytes` of a file, or all of a shorter one; empty where read_whole() has nothing.
std::string read_tail(const std::filesystem::path& path, i64 bytes);

struct Host {
  std::filesystem::path root = "/";
  /// Empty when the variable is not set or empty.
  std::function<std::optional<std::string>(const char* name)> environment = real_environment;

  static std::optional<std::string> real_environment(const char* name);
  std::optional<std::string> env(const char* name) const { return environment(name); }
  /// A whole small file under the root, by its absolute name; empty when it cannot be read.
  std::optional<std::string> read(const std::string& absolute) const;
};

/// What is kept between runs for the user: $XDG_CACHE_HOME/spillway, else ~/.cache/spillway.
std::filesystem::path cache_folder(const Host& host);

}  // namespace spillway::app

#include "app/node/host.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace spillway::app {

std::optional<std::string> Host::real_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> Host::read(const std::string& absolute) const {
  return read_whole(root / std::filesystem::path(absolute).relative_path());
}

std::optional<std::string> read_whole(const std::filesystem::path& path) {
  std::error_code none;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path, none)) return std::nullopt;
  std::ostringstream text;
  // An empty file sets the fail bit of `text`, and is read all the same.
  text << file.rdbuf();
  return file.bad() || text.bad() ? std::nullopt : std::optional(text.str());
}

std::filesystem::path cache_folder(const Host& host) {
  const auto cache = host.env("XDG_CACHE_HOME");
  return (cache ? std::filesystem::path(*cache) : std::filesystem::path(host.env("HOME").value_or(".")) / ".cache") / "spillway";
}

}  // namespace spillway::app

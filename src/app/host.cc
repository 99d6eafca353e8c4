#include "app/host.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace spillway::app {

std::optional<std::string> Host::real_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> Host::read(const std::string& absolute) const {
  std::ifstream file(root / std::filesystem::path(absolute).relative_path());
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return std::nullopt;
  return text.str();
}

}  // namespace spillway::app

#include "trainer/run/text_notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "data/files/file.h"

namespace spillway::trainer {
namespace {

constexpr i64 kLooked = 64 * kKiB;

// Returns whether `b` is a C0 control character other than tab, line feed, form feed and carriage return.
bool is_control(std::byte b) {
  const auto c = std::to_integer<unsigned>(b);
  return c < 0x20 && c != '\t' && c != '\n' && c != '\f' && c != '\r';
}

// Returns the .txt files among the paths, and those in the folders among the paths. Of a folder only the first few files by name are
// returned.
std::vector<std::string> texts_of(const std::vector<std::string>& paths) {
  constexpr size_t kMostOfFolder = 16;
  std::vector<std::string> texts;
  std::error_code none;
  for (const std::string& path : paths) {
    std::vector<std::string> own;
    if (!std::filesystem::is_directory(path, none)) own.push_back(path);
    for (const auto& entry : std::filesystem::directory_iterator(path, none)) own.push_back(entry.path().string());
    std::erase_if(own, [&](const std::string& file) {
      return std::filesystem::path(file).extension() != ".txt" || !std::filesystem::is_regular_file(file, none);
    });
    std::ranges::sort(own);
    own.resize(std::min(own.size(), kMostOfFolder));
    texts.insert(texts.end(), own.begin(), own.end());
  }
  return texts;
}

}  // namespace

std::string text_notice(const std::vector<std::string>& paths) {
  for (const std::string& path : texts_of(paths)) {
    const data::File file = data::File::open(path);
    std::vector<std::byte> bytes(static_cast<size_t>(std::min(kLooked, file.size_bytes())));
    file.read(0, bytes);
    const auto controls = std::ranges::count_if(bytes, is_control);
    if (controls * 100 <= std::ssize(bytes)) continue;
    return fmt::format(
        "{} does not look like text: {} of its first {} bytes are control characters; is it compressed, or a token file (.bin)?", path,
        controls, bytes.size());
  }
  return "";
}

}  // namespace spillway::trainer

#include "app/checkpoints/tokenizer_files.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/file.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

constexpr i64 kMostBytes = 256 * kMiB;

std::string contents_of(const fs::path& path) {
  const data::File file = data::File::open(path);
  if (file.size_bytes() > kMostBytes)
    throw Error(ErrorCode::data, fmt::format("[tokenizer] {}: expected at most 256 MiB, got {} bytes", path.string(), file.size_bytes()));
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> tokenizer_files(const fs::path& at) {
  std::vector<std::pair<std::string, std::string>> files;
  const fs::path folder = fs::is_directory(at) ? at : at.parent_path();
  files.emplace_back("tokenizer.json", contents_of(fs::is_directory(at) ? at / "tokenizer.json" : at));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
                           "chat_template.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", "generation_config.json"}) {
    if (fs::is_regular_file(folder / name)) files.emplace_back(name, contents_of(folder / name));
  }
  return files;
}

}  // namespace spillway::app

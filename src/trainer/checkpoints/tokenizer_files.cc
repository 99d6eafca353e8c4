#include "trainer/checkpoints/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "data/files/file.h"
#include "trainer/checkpoints/generation_ends.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr i64 kMostTokenizerBytes = 256 * kMiB;

std::string contents_of(const fs::path& path) {
  const data::File file = data::File::open(path);
  if (file.size_bytes() > kMostTokenizerBytes)
    throw Error(ErrorCode::data, fmt::format("[tokenizer] {}: expected at most 256 MiB, got {} bytes", path.string(), file.size_bytes()));
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void put(NamedTexts& files, const std::string& name, std::string text) {
  std::erase_if(files, [&](const auto& file) { return file.first == name; });
  files.emplace_back(name, std::move(text));
}

constexpr const char* kTemplates = "additional_chat_templates";

void add_named_templates(const fs::path& folder, NamedTexts& files) {
  if (!fs::is_directory(folder / kTemplates)) return;
  NamedTexts found;
  for (const auto& entry : fs::directory_iterator(folder / kTemplates)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".jinja") continue;
    found.emplace_back((fs::path(kTemplates) / entry.path().filename()).string(), contents_of(entry.path()));
  }
  std::ranges::sort(found);
  files.insert(files.end(), found.begin(), found.end());
}

// Stores the text as chat_template.jinja and removes the files that transformers would prefer
// to it. A processor of transformers reads chat_template.json first. A tokenizer prefers
// additional_chat_templates/default.jinja, and for conversations with tools tool_use.jinja.
void put_chat_template(NamedTexts& files, const std::string& text) {
  std::erase_if(files, [](const auto& file) {
    return file.first == "chat_template.json" || file.first == fmt::format("{}/default.jinja", kTemplates) ||
           file.first == fmt::format("{}/tool_use.jinja", kTemplates);
  });
  put(files, "chat_template.jinja", text);
}

}  // namespace

NamedTexts tokenizer_files(const fs::path& at) {
  NamedTexts files;
  const fs::path folder = fs::is_directory(at) ? at : at.parent_path();
  files.emplace_back("tokenizer.json", contents_of(fs::is_directory(at) ? at / "tokenizer.json" : at));
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
                           "chat_template.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model", kGenerationConfigName}) {
    if (fs::is_regular_file(folder / name)) files.emplace_back(name, contents_of(folder / name));
  }
  add_named_templates(folder, files);
  return files;
}

NamedTexts model_files(const ModelSource& source, const std::optional<fs::path>& tokenizer) {
  NamedTexts files;
  if (tokenizer) {
    files = tokenizer_files(*tokenizer);
    if (const auto config = generation_config_of(source)) put(files, kGenerationConfigName, contents_of(*config));
  }
  if (source.chat_template) put_chat_template(files, *source.chat_template);
  return files;
}

}  // namespace spillway::trainer

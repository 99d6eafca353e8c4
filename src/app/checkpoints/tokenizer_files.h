// The tokenizer's files, which travel with a model's weights. Reads only.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace spillway::app {

/// Name and contents of each that is there: tokenizer.json and what lies beside it, the chat template too. Of a file, that one as
/// tokenizer.json. Error(data): one of more than 256 MiB, or unreadable.
std::vector<std::pair<std::string, std::string>> tokenizer_files(const std::filesystem::path& file_or_folder);

}  // namespace spillway::app

// Reads the files that are stored beside a model's weights: those of its tokenizer, and generation_config.json.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoints/model_source.h"

namespace spillway::trainer {

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// Returns name and contents of each tokenizer file that exists: tokenizer.json, its companions in the same folder
/// and the chat templates. The names of templates in additional_chat_templates/ include that folder. If the argument
/// is a file, it is used as tokenizer.json. Throws Error(data) for a file that is unreadable or larger than 256 MiB.
NamedTexts tokenizer_files(const std::filesystem::path& file_or_folder);

/// Returns name and contents of the files to write beside a model's weights, apart from
/// config.json: the files of its tokenizer, if it has one, and the model's generation_config.json.
/// If source.chat_template is set, it becomes chat_template.jinja, and the templates that
/// transformers would prefer to it are left out. Throws the same errors as tokenizer_files().
NamedTexts model_files(const ModelSource& source, const std::optional<std::filesystem::path>& tokenizer);

}  // namespace spillway::trainer

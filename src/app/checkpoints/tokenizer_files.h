// The files that travel with a model's weights. Reads only.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoints/model_source.h"

namespace spillway::app {

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

/// Name and contents of each that is there: tokenizer.json and what lies beside it, the chat templates too, those of
/// additional_chat_templates/ with the folder's name before theirs. Of a file, that one as tokenizer.json. Error(data): one of more than
/// 256 MiB, or unreadable.
NamedTexts tokenizer_files(const std::filesystem::path& file_or_folder);

/// What goes beside a model's weights but config.json: the files of its tokenizer, if it has one, and the generation_config.json of the
/// weights. source.chat_template, if there is one, is chat_template.jinja, and the templates that transformers would take before it, for
/// all conversations or for those with tools, are left out. The same errors.
NamedTexts model_files(const ModelSource& source, const std::optional<std::filesystem::path>& tokenizer);

}  // namespace spillway::app

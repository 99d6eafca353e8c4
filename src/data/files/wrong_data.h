// Refuses paths that were given as data and cannot be used, and says how to get or to convert the data. Thread-safe.
#pragma once
#include <filesystem>

namespace spillway::data {

/// Throws Error(data) for a path that does not exist. If the path looks like a URL or a name on the Hugging Face Hub, the message says that
/// nothing is downloaded and how to get the file.
[[noreturn]] void refuse_missing(const std::filesystem::path& path);

/// Throws Error(usage) for a file of a kind that language models are not trained on. The message names all kinds that are read and says
/// how to convert the file.
[[noreturn]] void refuse_kind(const std::filesystem::path& path);

/// Throws Error(usage) for a folder without .txt files. The message says how to convert one of the files that are there.
[[noreturn]] void refuse_without_texts(const std::filesystem::path& folder);

}  // namespace spillway::data

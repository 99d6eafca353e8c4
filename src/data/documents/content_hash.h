// BLAKE2b-256 (RFC 7693) of files and of lists of texts: equal only for what is equal, so that contents are known by it. Thread-safe.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace spillway::data {

/// 64 hex digits over the fields, each with its length before it: no two lists of fields are one.
std::string hash_of_fields(const std::vector<std::string>& fields);

/// 64 hex digits over a file's size and its pieces' hashes, which `threads` threads make. Error(data), Error(io): it cannot be read.
std::string hash_of_file(const std::filesystem::path& path, int threads);

}  // namespace spillway::data

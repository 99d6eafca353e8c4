// Computes BLAKE2b-256 hashes (RFC 7693) of files and of lists of texts, used to recognise equal contents. Thread-safe.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace spillway::data {

/// Returns a hash of the fields as 64 hex digits. The length of each field is hashed before the field, so that two different lists of
/// fields never hash the same bytes.
std::string hash_of_fields(const std::vector<std::string>& fields);

/// Returns a hash of a file as 64 hex digits. The hash is computed from the file's size and from the hashes of
/// its pieces, which `threads` threads compute. Throws Error(data) or Error(io) if the file cannot be read.
std::string hash_of_file(const std::filesystem::path& path, int threads);

}  // namespace spillway::data

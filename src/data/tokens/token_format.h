// Names the constants of the token file formats and finds where the tokens are in a file. All numbers are little-endian. The formats:
//
//   llm.c     header of 256 int32: magic, version, number of tokens (low 32 bits), its high 32 bits (ours: llm.c itself has 0 there and
//             refuses more than 2^31 tokens), zeros; then uint16 tokens (magic 20240520, version 1) or uint32 (20240801, version 7)
//   nanoGPT   uint16 tokens, no header
//   Megatron  NAME.bin: tokens; NAME.idx: "MMIDIDX\0\0", version (u64, 1), dtype code (u8), sequences (u64), documents (u64), then
//             sizes (i32 each sequence), byte offsets (i64 each sequence), first sequence of each document (i64 each)
#pragma once
#include <filesystem>

#include "data/files/file.h"

namespace spillway::data {

constexpr i64 kLlmcHeaderBytes = 256 * 4;
constexpr u32 kLlmcMagic16 = 20240520, kLlmcVersion16 = 1;
constexpr u32 kLlmcMagic32 = 20240801, kLlmcVersion32 = 7;

struct TokenLayout {
  i64 begin_bytes = 0;  // the offset of the first token in the file
  i64 tokens = 0;
  int width_bytes = 2;  // the bytes per token: 1, 2, 4 or 8
  bool is_signed = false;
};

/// Returns true if the file is empty or begins with the magic number and version of llm.c's token format.
bool begins_as_token_file(const File& file);

/// Finds the format of an opened `.bin` file. Checks the file's size, and
/// the sizes in the .idx file if one lies next to it. Throws Error(data).
TokenLayout token_layout(const File& file);

}  // namespace spillway::data

#include "data/weights/llm_c_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "data/files/file.h"
#include "data/safetensors/wide.h"
#include "data/weights/transposed.h"

namespace spillway::data {
namespace {

constexpr i32 kLlmCMagic = 20240326, kLlmCF32 = 3, kLlmCBf16 = 5;
constexpr size_t kLlmCInts = 256, kLlmCIntsSaid = 8;
constexpr i64 kLlmCHeaderBytes = kLlmCInts * sizeof(i32);
// The limits of the sizes in the header. They are far above those of any model, and low enough that no product of them overflows 64 bits.
constexpr i64 kLlmCWidth = i64{1} << 20, kLlmCLayers = 8192, kLlmCPositions = i64{1} << 27, kLlmCVocabulary = i64{1} << 24;

[[noreturn]] void reject_llm_c(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[llm.c] {}: {}", path.string(), why));
}

std::array<i32, kLlmCIntsSaid> llm_c_ints(const File& file) {
  if (file.size_bytes() < kLlmCHeaderBytes)
    reject_llm_c(file.path(), fmt::format("expected a header of {} bytes, got a file of {}", kLlmCHeaderBytes, file.size_bytes()));
  std::array<i32, kLlmCIntsSaid> header{};
  file.read(0, std::as_writable_bytes(std::span(header)));
  return header;
}

LlmCHeader llm_c_header(const File& file) {
  const auto header = llm_c_ints(file);
  if (header[0] != kLlmCMagic)
    reject_llm_c(file.path(), fmt::format("expected a file that begins with the number {}, got {}", kLlmCMagic, header[0]));
  if (header[1] != kLlmCF32 && header[1] != kLlmCBf16) {
    reject_llm_c(file.path(),
                 fmt::format("expected version {} (fp32) or {} (bf16), got {}: write the file again with llm.c's train_gpt2.py", kLlmCF32,
                             kLlmCBf16, header[1]));
  }
  const auto number = [&](size_t at, const char* what, i64 least, i64 most) {
    const i64 value = header[at];
    if (value < least || value > most)
      reject_llm_c(file.path(), fmt::format("expected {} from {} to {} as integer {} of the header (counted from 0), got {}", what, least,
                                            most, at, value));
    return value;
  };
  LlmCHeader said;
  said.dtype = header[1] == kLlmCBf16 ? DType::bf16 : DType::f32;
  said.positions = number(2, "a number of positions", 1, kLlmCPositions);
  said.vocabulary = number(3, "a vocabulary", 1, kLlmCVocabulary);
  said.layers = number(4, "a number of layers", 1, kLlmCLayers);
  said.width = number(6, "a width", 1, kLlmCWidth);
  said.heads = number(5, "a number of heads", 1, said.width);
  if (said.width % said.heads != 0)
    reject_llm_c(file.path(), fmt::format("expected a number of heads that divides the width {}, got {}", said.width, said.heads));
  said.padded_vocabulary = number(7, "a padded vocabulary", said.vocabulary, kLlmCVocabulary);
  return said;
}

// The layout of a tensor in the file. Only its first `kept` rows are used; the rows after them are padding.
struct LlmCLayout {
  const char* name;
  i64 rows, columns, kept;
  bool transposed;
};

}  // namespace

bool is_llm_c_file(const std::filesystem::path& path) {
  const File file = File::open(path);
  return file.size_bytes() >= kLlmCHeaderBytes && llm_c_ints(file)[0] == kLlmCMagic;
}

struct LlmCFile::State {
  explicit State(const std::filesystem::path& path) : file(File::open(path)), header(llm_c_header(file)) {
    const i64 C = header.width, V = header.padded_vocabulary, T = header.positions;
    const std::array<LlmCLayout, 12> of_layers{{{"ln_1.weight", C, 1, C, false},
                                                {"ln_1.bias", C, 1, C, false},
                                                {"attn.c_attn.weight", 3 * C, C, 3 * C, true},
                                                {"attn.c_attn.bias", 3 * C, 1, 3 * C, false},
                                                {"attn.c_proj.weight", C, C, C, true},
                                                {"attn.c_proj.bias", C, 1, C, false},
                                                {"ln_2.weight", C, 1, C, false},
                                                {"ln_2.bias", C, 1, C, false},
                                                {"mlp.c_fc.weight", 4 * C, C, 4 * C, true},
                                                {"mlp.c_fc.bias", 4 * C, 1, 4 * C, false},
                                                {"mlp.c_proj.weight", C, 4 * C, C, true},
                                                {"mlp.c_proj.bias", C, 1, C, false}}};
    i64 elems = (V + T) * C + 2 * C;
    for (const LlmCLayout& kind : of_layers) elems += header.layers * kind.rows * kind.columns;
    const i64 expected = kLlmCHeaderBytes + elems * size_of(header.dtype);
    if (expected != file.size_bytes()) {
      reject_llm_c(path, fmt::format("expected {} bytes according to the header ({} layers of width {}, {} tokens padded to {}, {} "
                                     "positions, {}), got {}: the file is incomplete, or is not a model of llm.c",
                                     expected, header.layers, C, header.vocabulary, V, T, to_string(header.dtype), file.size_bytes()));
    }
    add("transformer.wte.weight", {"", V, C, header.vocabulary, false}, 2);
    add("transformer.wpe.weight", {"", T, C, T, false}, 2);
    for (const LlmCLayout& kind : of_layers) {
      for (i64 layer = 0; layer < header.layers; ++layer)
        add(fmt::format("transformer.h.{}.{}", layer, kind.name), kind, kind.columns == 1 && !kind.transposed ? 1 : 2);
    }
    add("transformer.ln_f.weight", {"", C, 1, C, false}, 1);
    add("transformer.ln_f.bias", {"", C, 1, C, false}, 1);
  }

  void add(const std::string& name, const LlmCLayout& kind, int rank) {
    TensorInfo info;
    info.name = name;
    info.dtype = header.dtype;
    info.shape = kind.transposed ? Shape{kind.columns, kind.kept} : rank == 1 ? Shape{kind.kept} : Shape{kind.kept, kind.columns};
    info.begin = next * size_of(header.dtype);
    info.end = (next + kind.kept * kind.columns) * size_of(header.dtype);
    next += kind.rows * kind.columns;
    index.add(std::move(info));
    transposed.push_back(kind.transposed);
  }

  // Reads elements of a tensor in the order in which the file stores them.
  void read(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
    const i64 size = size_of(tensor.dtype);
    std::vector<std::byte> bytes(std::min<size_t>(out.size(), 65536) * static_cast<size_t>(size));
    for (size_t at = 0; at < out.size();) {
      const size_t count = std::min(out.size() - at, bytes.size() / static_cast<size_t>(size));
      const std::span piece(bytes.data(), count * static_cast<size_t>(size));
      file.read(kLlmCHeaderBytes + tensor.begin + (begin + static_cast<i64>(at)) * size, piece);
      widen_stored(piece, tensor.dtype, out.subspan(at, count));
      at += count;
    }
  }

  File file;
  LlmCHeader header;
  i64 next = 0;  // index of the element that follows the last tensor added
  TensorIndex index;
  std::vector<bool> transposed;
  // Cache for reading a transposed tensor: rows [band_begin, band_end) of the tensor that was read last. The rows are those of the tensor
  // after transposition.
  std::mutex mutex;
  const TensorInfo* banded = nullptr;
  i64 band_begin = 0, band_end = 0;
  std::vector<float> band;
};

LlmCFile::LlmCFile(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) { hold(std::move(state_->index)); }
LlmCFile::~LlmCFile() = default;

const LlmCHeader& LlmCFile::header() const { return state_->header; }

void LlmCFile::widen(const TensorInfo& tensor, i64 begin, std::span<double> out) const {
  require(begin >= 0 && begin + static_cast<i64>(out.size()) <= tensor.shape.elems(), "[llm.c] expected a range inside the tensor");
  if (!state_->transposed[number_of(tensor)]) return state_->read(tensor, begin, out);
  // Rows of the tensor are columns of the matrix in the file.
  const i64 rows = tensor.shape[0], columns = tensor.shape[1];
  const std::lock_guard lock(state_->mutex);
  for (size_t at = 0; at < out.size();) {
    const i64 element = begin + static_cast<i64>(at), row = element / columns;
    if (state_->banded != &tensor || row < state_->band_begin || row >= state_->band_end) {
      state_->banded = nullptr;  // the cache is invalid until it has been filled again
      state_->band_begin = row;
      state_->band_end = std::min(rows, row + transposed_band(columns));
      const i64 count = state_->band_end - row;
      state_->band.resize(static_cast<size_t>(count * columns));
      const auto as_it_lies = [&](i64 from, std::span<double> piece) { state_->read(tensor, from, piece); };
      read_transposed(columns, rows, as_it_lies, row, count, state_->band);
      state_->banded = &tensor;
    }
    const i64 in_band = element - state_->band_begin * columns, left = state_->band_end * columns - element;
    const size_t count = std::min(out.size() - at, static_cast<size_t>(left));
    std::copy_n(state_->band.begin() + in_band, count, out.begin() + static_cast<std::ptrdiff_t>(at));
    at += count;
  }
}

}  // namespace spillway::data

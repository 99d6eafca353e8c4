#include "models/export/weight_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/stream.h"

namespace spillway::models {
namespace {

constexpr i64 kPieceBytes = kMiB;  // the size of each thread's buffer

}  // namespace

DType exported_dtype(const std::string& name) {
  if (name == "fp32" || name == "f32") return DType::f32;
  if (name == "fp64" || name == "f64") return DType::f64;
  if (name == "bf16") return DType::bf16;
  if (name == "fp16") return DType::f16;
  throw Error(ErrorCode::usage, fmt::format("[export] expected --dtype fp32, fp64, bf16 or fp16, got `{}`", name));
}

void write_bytes(const WeightSource& source, const nn::Parameter& parameter, DType dtype, const WriteBytes& write) {
  const i64 width = size_of(dtype), piece = kPieceBytes / width;
  const Stream& stream = Stream::current();
  std::vector<std::vector<std::byte>> of_thread(static_cast<size_t>(stream.thread_count()));
  stream.run(ceil_div(parameter.elems(), piece), [&](i64 number, int thread) {
    const i64 begin = number * piece;
    std::vector<std::byte>& bytes = of_thread[static_cast<size_t>(thread)];
    bytes.resize(static_cast<size_t>(std::min(piece, parameter.elems() - begin) * width));
    source.read_as(parameter, begin, dtype, bytes);
    write(begin * width, bytes);
  });
}

}  // namespace spillway::models

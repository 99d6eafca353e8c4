#include "kernels/sequence/embedding.h"

#include <algorithm>
#include <cstring>

#include "kernels/dispatch.h"
#include "kernels/has_cuda.h"

namespace spillway::kernels {
namespace {

constexpr i64 kTableTasks = 64;  // the number of tasks; each task computes some rows of the table, and searches all ids for those rows

void check(const Tensor& ids, const Tensor& table, const Tensor& rows) {
  require(ids.dtype() == DType::int32 && ids.is_contiguous(), "[embedding] expected contiguous int32 ids");
  require(table.rank() == 2 && table.is_contiguous() && rows.is_contiguous() && rows.elems() == ids.elems() * table.size(1),
          "[embedding] expected a contiguous table [V, C], and contiguous rows of C elements, one for each id");
}

}  // namespace

void embedding(const Tensor& ids, const Tensor& table, const Tensor& out) {
  check(ids, table, out);
  if (out.device().is_meta()) return;
  SPILLWAY_RETURN_IF_CUDA(out, embedding(ids, table, out));
  const i64 vocabulary = table.size(0), row_bytes = table.size(1) * size_of(table.dtype());
  const i32* id = ids.data<i32>();
  const std::byte* from = table.raw();
  std::byte* to = out.raw();
  Stream::current().for_ranges(ids.elems(), std::max<i64>(1, (1 << 16) / row_bytes), [=](i64 begin, i64 end) {
    for (i64 n = begin; n < end; ++n) {
      if (id[n] < 0 || id[n] >= vocabulary) {
        throw Error(ErrorCode::data, "[embedding] id " + std::to_string(id[n]) + " at position " + std::to_string(n) +
                                         " (positions are counted from 0) is outside the table of " + std::to_string(vocabulary) +
                                         " rows: check that the tokenizer belongs to the model");
      }
      std::memcpy(to + n * row_bytes, from + id[n] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

void embedding_gradient(const Tensor& ids, const Tensor& dout, i64 padding_row, const Tensor& dtable) {
  check(ids, dtable, dout);
  if (dtable.device().is_meta()) return;
  require(padding_row < dtable.size(0), "[embedding_gradient] expected the index of a padding row inside the table, or -1 for none");
  require(dtable.dtype() == wide_dtype(dout.dtype()),
          "[embedding_gradient] expected a gradient of the table in f32 (f64 if the gradient of the output is f64)");
  SPILLWAY_RETURN_IF_CUDA(dtable, embedding_gradient(ids, dout, padding_row, dtable));
  for_dtype("embedding_gradient", dout.dtype(), [&]<class T>(T) {
    using Sum = Wide<T>;
    const i64 columns = dtable.size(1), tokens = ids.elems();
    const i32* id = ids.data<i32>();
    const T* from = dout.data<T>();
    Sum* to = dtable.data<Sum>();
    Stream::current().for_ranges(dtable.size(0), ceil_div(dtable.size(0), kTableTasks), [=](i64 begin, i64 end) {
      std::memset(to + begin * columns, 0, static_cast<size_t>((end - begin) * columns) * sizeof(Sum));
      for (i64 n = 0; n < tokens; ++n) {
        if (id[n] < begin || id[n] >= end || id[n] == padding_row) continue;
        const T* add = from + n * columns;
        Sum* row = to + id[n] * columns;
        for (i64 c = 0; c < columns; ++c) row[c] += widen(add[c]);
      }
    });
  });
}

}  // namespace spillway::kernels

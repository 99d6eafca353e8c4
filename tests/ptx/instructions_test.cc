// Compares what instructions compute with values from the PTX ISA and plain loops.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "ptx/support_kernel.h"

namespace spillway::test::instructions_test {
namespace {

using namespace ptx;
using namespace ptx::test;

u32 bits(float x) { return std::bit_cast<u32>(x); }

struct Value {
  const char* instructions;  // %r1, %r2, %r3 are given; the result is %r4
  u32 a, b, c, want;
};

const Value kValues[] = {
    {"add.s32 %r4, %r1, %r2;", 0xffffffff, 2, 0, 1},
    {"add.sat.s32 %r4, %r1, %r2;", 0x7fffffff, 2, 0, 0x7fffffff},
    {"sub.s32 %r4, %r1, %r2;", 1, 2, 0, 0xffffffff},
    {"mul.lo.s32 %r4, %r1, %r2;", 0x10001, 0x10001, 0, 0x20001},
    {"mul.hi.u32 %r4, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0xfffffffe},
    {"mul.hi.s32 %r4, %r1, %r2;", 0xffffffff, 0xffffffff, 0, 0},
    {"mad.lo.s32 %r4, %r1, %r2, %r3;", 3, 4, 5, 17},
    {"mul.wide.s32 %d3, %r1, %r2; shr.u64 %d3, %d3, 32; cvt.u32.u64 %r4, %d3;", 0xffffffff, 2, 0, 0xffffffff},
    {"add.cc.u32 %r4, %r1, %r2; addc.u32 %r4, %r3, 0;", 0xffffffff, 1, 7, 8},
    {"sub.cc.u32 %r4, %r1, %r2; subc.u32 %r4, %r3, 0;", 0, 1, 7, 6},
    {"div.s32 %r4, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffffd},
    {"rem.s32 %r4, %r1, %r2;", 0xfffffff9, 2, 0, 0xffffffff},
    {"min.s32 %r4, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffff9},
    {"max.u32 %r4, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffff9},
    {"shl.b32 %r4, %r1, %r2;", 1, 32, 0, 0},
    {"shr.s32 %r4, %r1, %r2;", 0x80000000, 40, 0, 0xffffffff},
    {"shf.l.wrap.b32 %r4, %r1, %r2, %r3;", 0x80000000, 1, 1, 3},
    {"shf.r.clamp.b32 %r4, %r1, %r2, %r3;", 1, 0x1234, 32, 0x1234},
    {"lop3.b32 %r4, %r1, %r2, %r3, 0x96;", 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0xff00ff00 ^ 0xf0f0f0f0 ^ 0xcccccccc},
    {"prmt.b32 %r4, %r1, %r2, 0x5410;", 0x33221100, 0x77665544, 0, 0x55441100},
    {"prmt.b32 %r4, %r1, %r2, 0x8888;", 0x80, 0, 0, 0xffffffff},
    {"bfe.u32 %r4, %r1, 4, 8;", 0xabcd1234, 0, 0, 0x23},
    {"bfe.s32 %r4, %r1, 4, 4;", 0x000000f0, 0, 0, 0xffffffff},
    {"bfi.b32 %r4, %r1, %r2, 8, 4;", 0xf, 0, 0, 0xf00},
    {"popc.b32 %r4, %r1;", 0xf0f0, 0, 0, 8},
    {"clz.b32 %r4, %r1;", 0x00010000, 0, 0, 15},
    {"brev.b32 %r4, %r1;", 1, 0, 0, 0x80000000},
    {"bfind.u32 %r4, %r1;", 0x00010000, 0, 0, 16},
    {"cvt.s16.s8 %h1, %h1; mov.b32 {%h1, %h2}, %r1; cvt.s32.s8 %r4, %h1;", 0x80, 0, 0, 0xffffff80},
    {"mov.b32 {%h1, %h2}, %r1; mov.b32 %r4, {%h2, %h1};", 0x12345678, 0, 0, 0x56781234},
    {"setp.lt.s32 %p1, %r1, %r2; selp.b32 %r4, 1, 2, %p1;", 0xffffffff, 0, 0, 1},
    {"setp.lo.u32 %p1, %r1, %r2; selp.b32 %r4, 1, 2, %p1;", 0xffffffff, 0, 0, 2},
    {"setp.ne.s32 %p1, %r1, 0; setp.lt.and.s32 %p2|%p3, %r1, %r2, !%p1; selp.b32 %r4, 1, 2, %p3;", 0, 0, 0, 1},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.rz.f32 %f3, %f1, %f2; mov.b32 %r4, %f3;", 0x3f800000, 0x33ffffff, 0, 0x3f800000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; add.rp.f32 %f3, %f1, %f2; mov.b32 %r4, %f3;", 0x3f800000, 1, 0, 0x3f800001},
    // Only a fused product keeps 2^-46.
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; fma.rn.f32 %f3, %f1, %f1, %f2; mov.b32 %r4, %f3;", 0x3f800001, 0xbf800002, 0, 0x28800000},
    {"mov.b32 %f1, %r1; mul.ftz.f32 %f3, %f1, 0f3F800000; mov.b32 %r4, %f3;", 0x00000001, 0, 0, 0},
    {"mov.b32 %f1, %r1; add.f32 %f3, %f1, %f1; mov.b32 %r4, %f3;", 0xffc00001, 0, 0, 0x7fffffff},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; max.f32 %f3, %f1, %f2; mov.b32 %r4, %f3;", 0x7fffffff, 0x3f800000, 0, 0x3f800000},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; max.NaN.f32 %f3, %f1, %f2; mov.b32 %r4, %f3;", 0x7fffffff, 0x3f800000, 0, 0x7fffffff},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; min.f32 %f3, %f1, %f2; mov.b32 %r4, %f3;", 0x80000000, 0, 0, 0x80000000},
    {"mov.b32 %f1, %r1; cvt.sat.f32.f32 %f3, %f1; mov.b32 %r4, %f3;", 0xbf800000, 0, 0, 0},
    {"mov.b32 %f1, %r1; cvt.rni.s32.f32 %r4, %f1;", 0x40200000, 0, 0, 2},
    {"mov.b32 %f1, %r1; cvt.rzi.u32.f32 %r4, %f1;", 0x7fffffff, 0, 0, 0},
    {"mov.b32 %f1, %r1; cvt.rzi.s32.f32 %r4, %f1;", 0x4f800000, 0, 0, 0x7fffffff},
    {"mov.b32 %f1, %r1; cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r4, %h1;", 0x7fc00000, 0, 0, 0x7fff},
    {"mov.b32 %f1, %r1; cvt.rn.f16.f32 %h1, %f1; cvt.u32.u16 %r4, %h1;", 0x477ff000, 0, 0, 0x7c00},
    {"mov.b32 %f1, %r1; cvt.rn.bf16.f32 %h1, %f1; cvt.u32.u16 %r4, %h1;", 0x3f808000, 0, 0, 0x3f80},
    {"mov.b32 %f1, %r1; cvt.rz.bf16.f32 %h1, %f1; cvt.u32.u16 %r4, %h1;", 0x3f80ffff, 0, 0, 0x3f80},
    {"mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.bf16x2.f32 %r4, %f1, %f2;", 0x3f800000, 0x40000000, 0, 0x3f804000},
    {"mov.b32 %f1, %r1; cvt.rna.tf32.f32 %r4, %f1;", 0x3f801000, 0, 0, 0x3f802000},
    {"mov.b32 {%h1, %h2}, %r1; add.rn.f16 %h1, %h1, %h2; cvt.u32.u16 %r4, %h1;", 0x3c004000, 0, 0, 0x4200},
    {"fma.rn.bf16x2 %r4, %r1, %r2, %r3;", 0x40003f80, 0x40404000, 0x3f803f80, 0x40e04040},
    {"mov.b32 %f1, %r1; copysign.f32 %f3, %f1, 0f40000000; mov.b32 %r4, %f3;", 0xbf800000, 0, 0, 0xc0000000},
    {"redux.sync.max.s32 %r4, %r1, -1;", 0xfffffff0, 0, 0, 0xfffffff0},
    {"match.any.sync.b32 %r4, %r1, -1;", 5, 0, 0, 0xffffffff},
    {"mov.u32 %r4, %lanemask_lt; popc.b32 %r4, %r4; sub.u32 %r4, %r4, %r0;", 0, 0, 0, 0},
    // A loop whose number of rounds differs from lane to lane, and a vote among all lanes behind it.
    {"mov.u32 %r4, 0; mov.u32 %r5, 0; A: add.u32 %r4, %r4, 1; add.u32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %r0; @%p1 bra A; "
     "vote.sync.ballot.b32 %r6, "
     "%p1, -1; sub.u32 %r4, %r4, %r0; add.u32 %r4, %r4, %r6;",
     0, 0, 0, 1},
    {"brx.idx %r1, T; T: .branchtargets A, B; A: mov.u32 %r4, 10; bra C; B: mov.u32 %r4, 20; C:", 1, 0, 0, 20},
};

TEST(Instructions, ComputeWhatTheIsaSays) {
  for (const Value& v : kValues) {
    Buffer<u32> memory(32);
    const auto set = [](const char* name, u32 value) { return std::string("mov.b32 ") + name + ", " + std::to_string(value) + "; "; };
    const std::string report =
        run(set("%r1", v.a) + set("%r2", v.b) + set("%r3", v.c) + v.instructions + " st.global.u32 [%d2], %r4;", memory.data());
    ASSERT_EQ(report, "") << v.instructions;
    for (std::size_t lane = 0; lane < 32; ++lane) ASSERT_EQ(memory[lane], v.want) << v.instructions << " lane " << lane;
  }
}

TEST(Instructions, ShufflesMoveAsTheIsaSays) {
  const auto lanes = [](const std::string& how) {
    Buffer<u32> memory(32);
    EXPECT_EQ(run("shfl.sync." + how + ", -1; st.global.u32 [%d2], %r4;", memory.data()), "");
    return memory.values();
  };
  const auto up = lanes("up.b32 %r4, %r0, 3, 0"), down = lanes("down.b32 %r4, %r0, 3, 31"), cross = lanes("bfly.b32 %r4, %r0, 5, 31"),
             from = lanes("idx.b32 %r4, %r0, 2, 0x181f");
  for (u32 l = 0; l < 32; ++l) {
    EXPECT_EQ(up[l], l < 3 ? l : l - 3);
    EXPECT_EQ(down[l], l + 3 > 31 ? l : l + 3);
    EXPECT_EQ(cross[l], l ^ 5);
    EXPECT_EQ(from[l], l / 8 * 8 + 2);
  }
}

// ldmatrix and mma.sync of random small integers, whose sums are exact, against loops. Fragments come through ldmatrix as kernels load
// them.
TEST(Instructions, ProductsOfMatrices) {
  std::mt19937 random(1);
  Buffer<u16> operands(16 * 16 + 16 * 8);  // a by rows, then b by rows
  float a[16][16], b[16][8];
  for (std::size_t i = 0; i < 16 * 16 + 16 * 8; ++i) {
    const float x = static_cast<float>(static_cast<int>(random() % 17) - 8);
    operands[i] = static_cast<u16>(bits(x) >> 16);
    (i < 256 ? a[i / 16][i % 16] : b[(i - 256) / 8][i % 8]) = x;
  }
  Buffer<float> sums(16 * 8);
  const std::string body =
      ".shared .align 16 .b8 s[768];"
      // 24 threads copy 32 bytes each.
      "setp.lt.u32 %p1, %r0, 24; mul.lo.u32 %r10, %r0, 32; cvt.u64.u32 %d5, %r10; add.u64 %d5, %d0, %d5; mov.u32 %r11, s; add.u32 %r10, "
      "%r11, %r10;"
      "@%p1 cp.async.cg.shared.global [%r10], [%d5], 16; @%p1 cp.async.cg.shared.global [%r10+16], [%d5+16], 16;"
      "cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync -1;"
      // Lane l's row of matrix l / 8 of a: row l % 16, column 8 (l / 16).
      "and.b32 %r12, %r0, 15; shl.b32 %r12, %r12, 5; shr.u32 %r13, %r0, 4; shl.b32 %r13, %r13, 4; add.u32 %r12, %r12, %r13; add.u32 %r12, "
      "%r12, %r11;"
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r12];"
      // b is transposed while it is loaded: row l % 16 of 16 bytes.
      "and.b32 %r12, %r0, 15; shl.b32 %r12, %r12, 4; add.u32 %r12, %r12, %r11;"
      "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r5, %r6}, [%r12+512];"
      "mov.f32 %f1, 0f3F800000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};"
      "ld.param.u64 %d6, [k_param_1]; shr.u32 %r7, %r0, 2; shl.b32 %r7, %r7, 5; and.b32 %r8, %r0, 3; shl.b32 %r8, %r8, 3; add.u32 %r7, "
      "%r7, %r8;"
      "cvt.u64.u32 %d7, %r7; add.u64 %d6, %d6, %d7; st.global.v2.f32 [%d6], {%f1, %f2}; st.global.v2.f32 [%d6+256], {%f3, %f4};";
  ASSERT_EQ(run(body, operands.data(), 32, 1, 3, sums.data()), "");
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t c = 0; c < 8; ++c) {
      float want = 1;
      for (std::size_t k = 0; k < 16; ++k) want += a[r][k] * b[k][c];
      EXPECT_EQ(sums[r * 8 + c], want) << r << " " << c;
    }
  }
}

// Atomic additions of all threads of all blocks, in shared and in global memory.
TEST(Instructions, AtomicSums) {
  Buffer<u32> sum(1);
  const std::string body =
      ".shared .align 4 .b8 s[4]; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s], 0; bar.sync 0; atom.shared.add.u32 %r1, [s], %r0; "
      "bar.sync 0;"
      "@%p1 ld.shared.u32 %r2, [s]; @%p1 red.global.add.u32 [%d0], %r2;";
  EXPECT_EQ(run(body, sum.data(), 96, 5), "");
  EXPECT_EQ(sum[0], 5u * 96 * 95 / 2);
}

// A called function gets its parameters and returns its result through memory of the thread.
TEST(Instructions, Calls) {
  const std::string text =
      ".version 9.0\n.target sm_80\n.address_size 64\n"
      ".func (.param .b32 result) twice(.param .b32 x)\n{\n.reg .b32 %r<3>; .reg .pred %p<2>;\nld.param.b32 %r1, [x]; setp.gt.u32 %p1, "
      "%r1, 20; @%p1 bra A;"
      "add.u32 %r1, %r1, %r1; A: st.param.b32 [result], %r1; ret;\n}\n"
      ".entry k(.param .u64 p)\n{\n.reg .b32 %r<4>; .reg .b64 %d<4>;\nmov.u32 %r1, %tid.x; {.param .b32 a; st.param.b32 [a], %r1; .param "
      ".b32 b;"
      "call.uni (b), twice, (a); ld.param.b32 %r2, [b];} mul.wide.u32 %d1, %r1, 4; ld.param.u64 %d0, [p]; add.u64 %d0, %d0, %d1;"
      "st.global.u32 [%d0], %r2; ret;\n}\n";
  Loaded loaded(text);
  Buffer<u32> memory(32);
  void* pointer = memory.data();
  void* arguments[] = {&pointer};
  ASSERT_EQ(loaded.run("k", {{1, 1, 1}, {32, 1, 1}, 0}, loaded.parameters_of("k", arguments), 1), "");
  for (u32 l = 0; l < 32; ++l) EXPECT_EQ(memory[l], l > 20 ? l : 2 * l);
}

// Approximate functions stay within the errors that the ISA documents, and are not exact.
TEST(Instructions, ApproximateFunctions) {
  const auto values = [](const std::string& instruction) {
    Buffer<u32> memory(32);
    EXPECT_EQ(run("cvt.rn.f32.u32 %f1, %r0; add.f32 %f1, %f1, 0f3FC00000; " + instruction + " %f2, %f1; st.global.f32 [%d2], %f2;",
                  memory.data()),
              "");
    return memory.values();
  };
  int moved = 0;
  for (const auto& [instruction, exact, most] : {std::tuple{"ex2.approx.ftz.f32", +[](double x) { return std::exp2(x); }, 2.5},
                                                 {"rcp.approx.ftz.f32", +[](double x) { return 1 / x; }, 1.5},
                                                 {"rsqrt.approx.f32", +[](double x) { return 1 / std::sqrt(x); }, 2.5}}) {
    const auto got = values(instruction);
    for (u32 l = 0; l < 32; ++l) {
      const double want = exact(l + 1.5);
      const auto nearest = static_cast<float>(want);
      const double ulp = std::nextafter(nearest, INFINITY) - nearest;
      EXPECT_LE(std::abs(std::bit_cast<float>(got[l]) - want), most * ulp) << instruction << " of " << l + 1.5;
      moved += std::bit_cast<float>(got[l]) != nearest;
    }
  }
  EXPECT_GT(moved, 40);
}

}  // namespace
}  // namespace spillway::test::instructions_test

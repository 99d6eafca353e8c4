// Each kernel here has one fault that a GPU would commit silently, or most of the time. The interpreter names it. Beside it stands the same
// kernel without the fault, of which nothing may be said.
#include "ptx/support_kernel.h"

namespace spillway::test::planted_faults_test {
namespace {

using namespace ptx;
using namespace ptx::test;

using testing::HasSubstr;

struct Fault {
  const char* name;
  const char *faulty, *sound;
  const char* said;
  unsigned threads = 32, blocks = 1;
};

// 32 words of memory are written and 32 more are not.
const Fault kFaults[] = {
    {"GlobalOutOfBounds", "st.global.u32 [%d2+160], %r0;", "st.global.u32 [%d2], %r0;", "out of bounds: at byte 256 of 256"},
    {"GlobalNotAllocated", "mov.u64 %d3, 4096; ld.global.u32 %r1, [%d3];", "ld.global.u32 %r1, [%d2];", "nothing is allocated there"},
    {"SharedOutOfBounds",
     ".shared .align 4 .b8 s[128]; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1+132], %r0;",
     ".shared .align 4 .b8 s[128]; mov.u32 %r1, s; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %r0;",
     "of shared memory out of bounds"},
    {"LocalOutOfBounds", ".local .align 4 .b8 l[16]; mov.u64 %d3, l; st.local.u32 [%d3+16], %r0;",
     ".local .align 4 .b8 l[16]; mov.u64 %d3, l; st.local.u32 [%d3+12], %r0;", "of local memory out of bounds"},
    {"Misaligned", "ld.global.v2.u32 {%r1, %r2}, [%d0+4];", "ld.global.v2.u32 {%r1, %r2}, [%d0+8];",
     "a misaligned access of 8 bytes of global memory"},
    {"GlobalNeverWritten", "ld.global.u32 %r1, [%d2+128];", "ld.global.u32 %r1, [%d2];", "of global memory at"},
    {"SharedNeverWritten", ".shared .align 4 .b8 s[128]; ld.shared.u32 %r1, [s+4];",
     ".shared .align 4 .b8 s[128]; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s+4], %r0; bar.sync 0; ld.shared.u32 %r1, [s+4];",
     "of shared memory at 0x4 that were never written"},
    {"LocalNeverWritten", ".local .align 4 .b8 l[16]; ld.local.u32 %r1, [l+4];",
     ".local .align 4 .b8 l[16]; st.local.u32 [l+4], %r0; ld.local.u32 %r1, [l+4];", "of local memory at 0x4 that were never written"},
    // Each thread reads what its neighbour in the other warp wrote.
    {"SharedRace",
     ".shared .align 4 .b8 s[256]; shl.b32 %r2, %r0, 2; mov.u32 %r1, s; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0; bar.warp.sync -1;"
     "xor.b32 %r2, %r2, 128; add.u32 %r3, %r1, %r2; ld.shared.u32 %r4, [%r3];",
     ".shared .align 4 .b8 s[256]; shl.b32 %r2, %r0, 2; mov.u32 %r1, s; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0; bar.sync 0;"
     "xor.b32 %r2, %r2, 128; add.u32 %r3, %r1, %r2; ld.shared.u32 %r4, [%r3];",
     "", 64},
    // A tile is overwritten before all have read it.
    {"SharedRaceOfReader",
     ".shared .align 4 .b8 s[256]; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s], %r0; bar.sync 0; ld.shared.u32 %r1, [s];"
     "setp.eq.u32 %p1, %r0, 40; @%p1 st.shared.u32 [s], %r0;",
     ".shared .align 4 .b8 s[256]; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [s], %r0; bar.sync 0; ld.shared.u32 %r1, [s]; bar.sync 0;"
     "setp.eq.u32 %p1, %r0, 40; @%p1 st.shared.u32 [s], %r0;",
     "a data race in shared memory at byte 0", 64},
    // Lanes of a warp need bar.warp.sync too.
    {"SharedRaceInWarp",
     ".shared .align 4 .b8 s[128]; shl.b32 %r2, %r0, 2; mov.u32 %r1, s; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0; xor.b32 %r2, %r2, "
     "4;"
     "add.u32 %r3, %r1, %r2; ld.shared.u32 %r4, [%r3];",
     ".shared .align 4 .b8 s[128]; shl.b32 %r2, %r0, 2; mov.u32 %r1, s; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %r0; bar.warp.sync -1;"
     "xor.b32 %r2, %r2, 4; add.u32 %r3, %r1, %r2; ld.shared.u32 %r4, [%r3];",
     "a data race in shared memory"},
    {"GlobalRaceOfBlocks", "st.global.u32 [%d2], %r0;", "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u32 [%d2], %r0;",
     "a data race in global memory", 32, 2},
    // The two bytes of a half word belong to two threads; the words are shared without a race.
    {"GlobalRaceOfBytes", "mov.u16 %h1, 1; and.b32 %r1, %r0, 1; cvt.u64.u32 %d3, %r1; add.u64 %d3, %d0, %d3; st.global.u8 [%d3], %h1;",
     "mov.u16 %h1, 1; cvt.u64.u32 %d3, %r0; add.u64 %d3, %d0, %d3; st.global.u8 [%d3], %h1;", "a data race in global memory"},
    {"AtomicAndPlain", "red.global.add.u32 [%d0], 1; ld.global.u32 %r1, [%d0];",
     "red.global.add.u32 [%d0], 1; bar.sync 0; ld.global.u32 %r1, [%d0];", "a data race in global memory"},
    {"BarrierNotReached", "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 0; bra B; A: bar.sync 0; B:",
     "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; A: bar.sync 0;", "a barrier that not all threads reach", 64},
    {"BarrierInHalfAWarp", "setp.lt.u32 %p1, %r0, 16; @%p1 bra A; bar.sync 0; bra B; A: shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; B:",
     "bar.sync 0; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;", "never come there"},
    {"ShuffleOfMissingLanes", "setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;",
     "setp.lt.u32 %p1, %r0, 16; @%p1 shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;", "never come there"},
    {"ShuffleWithoutItself", "shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;", "shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffffffff;",
     "which does not name it"},
    {"ShuffleFromEndedLane", "setp.gt.u32 %p1, %r0, 23; @%p1 exit; shfl.sync.idx.b32 %r1, %r0, 30, 31, -1;",
     "setp.gt.u32 %p1, %r0, 23; @%p1 exit; shfl.sync.idx.b32 %r1, %r0, 20, 31, -1;", "reads lane 30, which is not there"},
    {"VoteOfMissingLanes", "setp.lt.u32 %p1, %r0, 16; @%p1 vote.sync.any.pred %p2, %p1, -1;", "vote.sync.any.pred %p2, %p1, -1;",
     "never come there"},
    {"ProductOfHalfAWarp",
     "setp.lt.u32 %p1, %r0, 16; mov.f32 %f1, 0f00000000; @%p1 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, "
     "{%r1, %r2, %r3, %r4},"
     "{%r5, %r6}, {%f1, %f2, %f3, %f4};",
     "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};",
     "mma.sync with only the lanes 0xffff"},
    {"CopyMisaligned", ".shared .align 16 .b8 s[1024]; cp.async.cg.shared.global [s], [%d0+4], 16;",
     ".shared .align 16 .b8 s[1024]; setp.eq.u32 %p1, %r0, 0; @%p1 cp.async.cg.shared.global [s], [%d0+16], 16;",
     "a misaligned cp.async of 16 bytes"},
    {"WrongSpace", "cvta.to.shared.u64 %d3, %d0;",
     ".shared .align 16 .b8 s[16]; mov.u64 %d4, s; cvta.shared.u64 %d4, %d4; cvta.to.shared.u64 %d3, %d4;", "none of the space"},
    {"Trap", "setp.eq.u32 %p1, %r0, 31; @%p1 trap;", "setp.eq.u32 %p1, %r0, 32; @%p1 trap;", "a trap"},
    {"UnknownInstruction", "texture.fetch %r1, %r0;", "", "the interpreter does not know the instruction in line"},
};

class PlantedFault : public testing::TestWithParam<Fault> {};

TEST_P(PlantedFault, IsNamed) {
  const Fault& f = GetParam();
  for (const unsigned seed : {1u, 2u, 3u}) {
    Buffer<u32> memory(64, false);
    mark_written(memory.data(), 128);
    const std::string report = run(f.faulty, memory.data(), f.threads, f.blocks, seed);
    EXPECT_THAT(report, HasSubstr(f.said));
    EXPECT_THAT(report, HasSubstr("kernel k"));
    Buffer<u32> again(64, false);
    mark_written(again.data(), 128);
    EXPECT_EQ(run(f.sound, again.data(), f.threads, f.blocks, seed), "");
  }
}
INSTANTIATE_TEST_SUITE_P(All, PlantedFault, testing::ValuesIn(kFaults), [](const auto& one) { return std::string(one.param.name); });

// Whether a copy that nobody waits for has landed is drawn, so this fault is found with some seeds.
TEST(PlantedFaults, CopyNotWaitedFor) {
  const std::string begin = ".shared .align 16 .b8 s[16]; setp.eq.u32 %p1, %r0, 0; @%p1 cp.async.cg.shared.global [s], [%d0], 16;",
                    end = "bar.sync 0; ld.shared.u32 %r1, [s];";
  int found = 0;
  for (unsigned seed = 1; seed <= 16; ++seed) {
    Buffer<u32> memory(4);
    const std::string report = run(begin + end, memory.data(), 32, 1, seed);
    EXPECT_TRUE(report.empty() || report.find("by a cp.async that was not waited for") != std::string::npos) << report;
    found += !report.empty();
    EXPECT_EQ(run(begin + "cp.async.wait_all;" + end, memory.data(), 32, 1, seed), "");
  }
  EXPECT_GT(found, 2);
  EXPECT_LT(found, 14);
}

TEST(PlantedFaults, MemoryThatWasFreed) {
  void* at = nullptr;
  {
    Buffer<u32> memory(64);
    at = memory.data();
    EXPECT_EQ(run("ld.global.u32 %r1, [%d2];", at), "");
  }
  EXPECT_THAT(run("ld.global.u32 %r1, [%d2];", at), HasSubstr("nothing is allocated there"));
}

// The report says where: the instruction, its line, the launch, the block and the warp; with -lineinfo the source line too.
TEST(PlantedFaults, ReportsSayWhere) {
  const std::string text =
      ".version 9.0\n.target sm_80\n.address_size 64\n.file 1 \"kernels/some_cuda.cu\"\n.entry k()\n{\n.reg .b32 %r<2>;\n.loc 1 42 "
      "3\ntrap;\nret;\n}\n";
  Loaded loaded(text);
  EXPECT_EQ(loaded.run("k", {{1, 1, 1}, {32, 1, 1}, 0}, {}, 1),
            "a trap; kernel k, line 9 (trap) of its PTX, kernels/some_cuda.cu:42, launched as (1, 1, 1) blocks of (32, 1, 1) threads, "
            "block (0, 0, 0), warp 0");
}

}  // namespace
}  // namespace spillway::test::planted_faults_test

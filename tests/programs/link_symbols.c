// Which names texts share: extern and visible ones are one variable for all, weak ones give way, common ones
// become the largest, and those without a linkage stay private. Variables of a linked module can be looked
// up.
#include "link.h"

// tell(to): to[0] = own, to[1] = weak_word, to[2] = a word of `pile`, to[3] = answer()
#define TELL(kernel)                                                                                         \
    ".visible .entry " kernel "(.param .u64 to)\n"                                                           \
    "{\n"                                                                                                    \
    "    .reg .b32 %r<5>;\n"                                                                                 \
    "    .reg .b64 %d<2>;\n"                                                                                 \
    "    .param .b32 result;\n"                                                                              \
    "    ld.param.u64 %d1, [to];\n"                                                                          \
    "    ld.global.u32 %r1, [own];\n"                                                                        \
    "    ld.global.u32 %r2, [weak_word];\n"                                                                  \
    "    ld.global.u32 %r3, [pile];\n"                                                                       \
    "    call (result), answer, ();\n"                                                                       \
    "    ld.param.b32 %r4, [result];\n"                                                                      \
    "    st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};\n"                                                    \
    "    ret;\n"                                                                                             \
    "}\n"

#define ANSWER(value)                                                                                        \
    ".func (.param .b32 r) answer() { .reg .b32 %r; mov.u32 %r, " value "; st.param.b32 [r], %r; ret; }\n"

static const char first_ptx[] = PTX_HEAD ".global .align 4 .u32 own = 1;\n"
                                         ".weak .global .align 4 .u32 weak_word = 2;\n"
                                         ".common .global .align 4 .u32 pile[2];\n" ANSWER("3") TELL("first");

static const char second_ptx[] =
    PTX_HEAD ".global .align 4 .u32 own = 10;\n"
             ".visible .global .align 4 .u32 weak_word = 20;\n"
             ".common .global .align 4 .u32 pile[16];\n" ANSWER("30") TELL("second");

static void tell(CUmodule loaded, const char *name, unsigned got[4]) {
    CUfunction function = NULL;
    CUdeviceptr to = allocate(16);
    QUIET(cuModuleGetFunction(&function, loaded, name));
    QUIET(LAUNCH(function, 1, 1, NULL, &to));
    QUIET(cuMemcpyDtoH(got, to, 16));
    QUIET(cuMemFree(to));
    printf("%s tells %u %u %u %u\n", name, got[0], got[1], got[2], got[3]);
}

int main(void) {
    CUlinkState state;
    CUmodule loaded;
    CUdeviceptr pile, weak;
    void *image;
    size_t size = 0;
    unsigned got[4] = {0}, count = 0;
    start();
    OK(cuLinkCreate(0, NULL, NULL, &state));
    OK(ADD_PTX(state, first_ptx, "first"));
    OK(ADD_PTX(state, second_ptx, "second"));
    OK(cuLinkComplete(state, &image, &size));
    OK(cuModuleLoadData(&loaded, image));
    OK(cuLinkDestroy(state));
    OK(cuModuleGetFunctionCount(&count, loaded));
    EXPECT(count == 2);
    OK(cuModuleGetGlobal(&pile, &size, loaded, "pile"));
    EXPECT(size == 64);
    OK(cuModuleGetGlobal(&weak, &size, loaded, "weak_word"));
    EXPECT(size == 4);
    OK(cuMemsetD32(pile, 5, 16));
    tell(loaded, "first", got);
    EXPECT(got[0] == 1 && got[1] == 20 && got[2] == 5 && got[3] == 3);
    tell(loaded, "second", got);
    EXPECT(got[0] == 10 && got[1] == 20 && got[2] == 5 && got[3] == 30);
    OK(cuMemsetD32(weak, 77, 1));
    tell(loaded, "first", got);
    EXPECT(got[1] == 77);
    OK(cuModuleUnload(loaded));
    return check_failed;
}

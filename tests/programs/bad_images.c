// Images that cannot be loaded, and what is said of them; the good one beside them works.
#include "driver.h"

int main(void) {
    CUmodule bad;
    CUlibrary library;
    start();
    static const char no_ptx[4096] = "this is no PTX at all\n";
    static const char future[] = ".version 99.0\n.target sm_80\n.address_size 64\n";
    static const char target[] = ".version 7.0\n.target sm_999\n.address_size 64\n";
    static const char syntax[] =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k( {\n ret;\n}\n";
    CALL(cuModuleLoadData(&bad, no_ptx));
    FAILS(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cuModuleLoadData(&bad, future));
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&bad, target));
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&bad, syntax));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&bad, NULL));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
    FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&bad, "/no/such/file.ptx"));
    expect_it_still_works();
    return check_failed;
}

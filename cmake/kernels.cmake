# Own kernels that are compiled for several instruction sets, each copy with its flags: see src/cpu/vector.h. LK_ISAS are
# those of the library; `lockstep_emulated` is for tests, which also run code for wide vectors on processors without.

set(LK_KERNELS "")
foreach(name direct_conv isa_table lanes_conv lanes_grad lanes_pool lanes_winograd lanes_winograd_points winograd_conv
             winograd_points)
  list(APPEND LK_KERNELS ${PROJECT_SOURCE_DIR}/src/cpu/${name}.c)
endforeach()

# lk_kernels(isa kind flags...): LK_KERNELS as a library lockstep_ISA.
function(lk_kernels isa kind)
  string(TOUPPER ${isa} macro)
  add_library(lockstep_${isa} ${kind} ${LK_KERNELS})
  target_include_directories(lockstep_${isa} PRIVATE include src)
  target_compile_definitions(lockstep_${isa} PRIVATE LK_VECTOR_${macro})
  target_compile_options(lockstep_${isa} PRIVATE -mavx2 -mfma ${ARGN})
endfunction()

set(LK_ISAS "")
if(ONEDNN_FOUND AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  lk_kernels(avx2 OBJECT)
  lk_kernels(avx512 OBJECT -mavx512f -mavx512vl -mavx512bw -mavx512dq)
  lk_kernels(emulated STATIC)
  set(LK_ISAS avx2 avx512)
endif()

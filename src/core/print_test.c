/* The expected texts are NumPy 1.24.2's for the same elements: print(numpy.array(values, dtype).reshape(shape)). NumPy
 * has no bf16; those texts follow from its rules and bf16's own shortest digits. */
#include "base/mem_testing.h"
#include "core/device_testing.h"
#include "lockstep/tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct print_case {
    lk_dtype dtype;
    lk_shape shape;
    const double *reals;
    const int64_t *ints;
    double start, step; /* if both are NULL: element i is start + i * step */
    const char *expected;
} print_case;

/* clang-format off */
#define REALS(...) (const double[]){__VA_ARGS__}, NULL, 0, 0
#define INTS(...) NULL, (const int64_t[]){__VA_ARGS__}, 0, 0
#define RAMP(start, step) NULL, NULL, start, step
#define NOTHING NULL, NULL, 0, 0

static const print_case numpy_cases[] = {
    /* whole numbers and fractions */
    {LK_F32, {1, {2}}, REALS(3.0, 3.0),
     "[3. 3.]"},
    {LK_F32, {2, {1, 2}}, REALS(3.0, 3.0),
     "[[3. 3.]]"},
    {LK_F32, {1, {3}}, REALS(1.0, -2.0, 0.5),
     "[ 1.  -2.   0.5]"},
    {LK_F32, {1, {4}}, REALS(0.100000001, 0.200000003, 0.25, 10.0),
     "[ 0.1   0.2   0.25 10.  ]"},
    {LK_F32, {1, {3}}, REALS(0.0, 0.0, 0.0),
     "[0. 0. 0.]"},
    {LK_F32, {1, {2}}, REALS(-0.0, 1.0),
     "[-0.  1.]"},
    {LK_F32, {2, {2, 2}}, REALS(0.333333343, 0.666666687, -0.333333343, 33.3333321),
     "[[ 0.33333334  0.6666667 ]\n"
     " [-0.33333334 33.333332  ]]"},
    {LK_F64, {2, {2, 2}}, REALS(0.3333333333333333, 0.6666666666666666, -0.3333333333333333, 33.333333333333336),
     "[[ 0.33333333  0.66666667]\n"
     " [-0.33333333 33.33333333]]"},
    {LK_F64, {1, {3}}, REALS(0.123456789012, 12345.678901234, 100.0),
     "[1.23456789e-01 1.23456789e+04 1.00000000e+02]"},
    {LK_F32, {1, {1}}, REALS(16777216.0),
     "[16777216.]"},
    {LK_F32, {1, {2}}, REALS(99999992.0, 1234567.0),
     "[99999992.  1234567.]"},
    {LK_F64, {1, {2}}, REALS(0.999999999, 0.5),
     "[1.  0.5]"},
    {LK_F64, {1, {1}}, REALS(100000000.0),
     "[1.e+08]"},
    /* scientific: at 1e8, below 1e-4, and where the ratio is above 1000 */
    {LK_F32, {1, {1}}, REALS(100000000.0),
     "[1.e+08]"},
    {LK_F32, {1, {1}}, REALS(123456792.0),
     "[1.2345679e+08]"},
    {LK_F32, {1, {2}}, REALS(9.99999975e-05, 1.0),
     "[1.e-04 1.e+00]"},
    {LK_F64, {1, {1}}, REALS(0.0001),
     "[0.0001]"},
    {LK_F64, {1, {1}}, REALS(9.9e-05),
     "[9.9e-05]"},
    {LK_F32, {1, {2}}, REALS(1.0, 1000.0),
     "[   1. 1000.]"},
    {LK_F32, {1, {2}}, REALS(1.0, 1001.0),
     "[1.000e+00 1.001e+03]"},
    {LK_F32, {1, {3}}, REALS(0.0, 0.5, 600.0),
     "[0.e+00 5.e-01 6.e+02]"},
    {LK_F32, {1, {3}}, REALS(9.99999975e-06, 1.23456776, -0.100000001),
     "[ 9.9999997e-06  1.2345678e+00 -1.0000000e-01]"},
    {LK_F32, {1, {3}}, REALS(3.40282347e+38, 1.17549435e-38, 1.40129846e-45),
     "[3.4028235e+38 1.1754944e-38 1.4012985e-45]"},
    {LK_F64, {1, {3}}, REALS(1e+300, -1e-300, 0.0),
     "[ 1.e+300 -1.e-300  0.e+000]"},
    {LK_F64, {1, {2}}, REALS(1.7976931348623157e+308, 5e-324),
     "[1.79769313e+308 4.94065646e-324]"},
    {LK_F64, {1, {2}}, REALS(0.1, 1e-05),
     "[1.e-01 1.e-05]"},
    {LK_F64, {1, {2}}, REALS(12345678912.3, 1.0),
     "[1.23456789e+10 1.00000000e+00]"},
    {LK_F32, {2, {2, 2}}, REALS(9.09494702e-13, 4.54747351e-13, 1.07374182e+09, 0.0),
     "[[9.0949470e-13 4.5474735e-13]\n"
     " [1.0737418e+09 0.0000000e+00]]"},
    /* infinities and NaN */
    {LK_F32, {1, {3}}, REALS(NAN, INFINITY, -INFINITY),
     "[ nan  inf -inf]"},
    {LK_F32, {1, {2}}, REALS(NAN, NAN),
     "[nan nan]"},
    {LK_F32, {1, {1}}, REALS(INFINITY),
     "[inf]"},
    {LK_F32, {1, {1}}, REALS(-INFINITY),
     "[-inf]"},
    {LK_F32, {1, {3}}, REALS(1.0, NAN, 2.0),
     "[ 1. nan  2.]"},
    {LK_F32, {1, {3}}, REALS(1.5, -INFINITY, 2.0),
     "[ 1.5 -inf  2. ]"},
    {LK_F32, {1, {4}}, REALS(1e+10, NAN, -INFINITY, 1.0),
     "[1.e+10    nan   -inf 1.e+00]"},
    {LK_F64, {1, {3}}, REALS(NAN, 12345.5, INFINITY),
     "[    nan 12345.5     inf]"},
    /* integer dtypes */
    {LK_I32, {1, {3}}, INTS(1, -20, 300),
     "[  1 -20 300]"},
    {LK_I64, {1, {2}}, INTS(INT64_MIN, 9223372036854775807),
     "[-9223372036854775808  9223372036854775807]"},
    {LK_U8, {2, {2, 3}}, INTS(0, 1, 2, 253, 254, 255),
     "[[  0   1   2]\n"
     " [253 254 255]]"},
    {LK_I32, {1, {1}}, INTS(0),
     "[0]"},
    {LK_I32, {1, {2}}, INTS(-2147483648, 2147483647),
     "[-2147483648  2147483647]"},
    /* scalars */
    {LK_F32, {0, {0}}, REALS(3.0),
     "3.0"},
    {LK_F32, {0, {0}}, REALS(3.5),
     "3.5"},
    {LK_F32, {0, {0}}, REALS(-0.0),
     "-0.0"},
    {LK_F32, {0, {0}}, REALS(0.100000001),
     "0.1"},
    {LK_F32, {0, {0}}, REALS(1.00000003e+16),
     "1e+16"},
    {LK_F32, {0, {0}}, REALS(1.50000004e+16),
     "1.5e+16"},
    {LK_F32, {0, {0}}, REALS(9.9999992e+15),
     "9999999000000000.0"},
    {LK_F32, {0, {0}}, REALS(9.99999975e-05),
     "1e-04"},
    {LK_F32, {0, {0}}, REALS(9.89999971e-05),
     "9.9e-05"},
    {LK_F32, {0, {0}}, REALS(NAN),
     "nan"},
    {LK_F32, {0, {0}}, REALS(INFINITY),
     "inf"},
    {LK_F32, {0, {0}}, REALS(-INFINITY),
     "-inf"},
    {LK_F32, {0, {0}}, REALS(16777216.0),
     "16777216.0"},
    {LK_F32, {0, {0}}, REALS(1.40129846e-45),
     "1e-45"},
    {LK_F32, {0, {0}}, REALS(3.40282347e+38),
     "3.4028235e+38"},
    {LK_F32, {0, {0}}, REALS(0.333333343),
     "0.33333334"},
    {LK_F64, {0, {0}}, REALS(0.3333333333333333),
     "0.3333333333333333"},
    {LK_F64, {0, {0}}, REALS(1e+16),
     "1e+16"},
    {LK_F64, {0, {0}}, REALS(123456789.123),
     "123456789.123"},
    {LK_F64, {0, {0}}, REALS(1e-05),
     "1e-05"},
    {LK_F64, {0, {0}}, REALS(1000000000000000.0),
     "1000000000000000.0"},
    {LK_F64, {0, {0}}, REALS(1.152921504606847e+18),
     "1.152921504606847e+18"},
    {LK_F64, {0, {0}}, REALS(5e-324),
     "5e-324"},
    {LK_I32, {0, {0}}, INTS(-7),
     "-7"},
    {LK_I64, {0, {0}}, INTS(9223372036854775807),
     "9223372036854775807"},
    {LK_U8, {0, {0}}, INTS(255),
     "255"},
    /* no elements */
    {LK_F32, {1, {0}}, NOTHING,
     "[]"},
    {LK_F32, {2, {3, 0}}, NOTHING,
     "[]"},
    {LK_I32, {3, {0, 5, 2}}, NOTHING,
     "[]"},
    /* two and more dimensions */
    {LK_F32, {6, {1, 1, 1, 1, 1, 1}}, REALS(1.0),
     "[[[[[[1.]]]]]]"},
    {LK_I32, {3, {2, 2, 2}}, INTS(0, 1, 2, 3, 4, 5, 6, 7),
     "[[[0 1]\n"
     "  [2 3]]\n"
     "\n"
     " [[4 5]\n"
     "  [6 7]]]"},
    {LK_F32, {4, {2, 1, 2, 2}}, REALS(0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.25),
     "[[[[0.5  1.  ]\n"
     "   [2.   3.  ]]]\n"
     "\n"
     "\n"
     " [[[4.   5.  ]\n"
     "   [6.   7.25]]]]"},
    {LK_I32, {4, {1, 3, 1, 2}}, INTS(0, 1, 2, 3, 4, 5),
     "[[[[0 1]]\n"
     "\n"
     "  [[2 3]]\n"
     "\n"
     "  [[4 5]]]]"},
    {LK_I32, {2, {3, 1}}, INTS(1, 10, 100),
     "[[  1]\n"
     " [ 10]\n"
     " [100]]"},
    {LK_I32, {5, {2, 2, 1, 2, 1}}, INTS(0, 1, 2, 3, 4, 5, 6, 7),
     "[[[[[0]\n"
     "    [1]]]\n"
     "\n"
     "\n"
     "  [[[2]\n"
     "    [3]]]]\n"
     "\n"
     "\n"
     "\n"
     " [[[[4]\n"
     "    [5]]]\n"
     "\n"
     "\n"
     "  [[[6]\n"
     "    [7]]]]]"},
    /* lines are 75 characters wide */
    {LK_I32, {1, {40}}, RAMP(0, 1),
     "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
     " 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39]"},
    {LK_F32, {1, {30}}, RAMP(0, 0.5),
     "[ 0.   0.5  1.   1.5  2.   2.5  3.   3.5  4.   4.5  5.   5.5  6.   6.5\n"
     "  7.   7.5  8.   8.5  9.   9.5 10.  10.5 11.  11.5 12.  12.5 13.  13.5\n"
     " 14.  14.5]"},
    {LK_F32, {2, {2, 22}}, RAMP(-3, 1),
     "[[-3. -2. -1.  0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14.\n"
     "  15. 16. 17. 18.]\n"
     " [19. 20. 21. 22. 23. 24. 25. 26. 27. 28. 29. 30. 31. 32. 33. 34. 35. 36.\n"
     "  37. 38. 39. 40.]]"},
    {LK_F64, {3, {1, 2, 12}}, RAMP(0.1, 0.1),
     "[[[0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.  1.1 1.2]\n"
     "  [1.3 1.4 1.5 1.6 1.7 1.8 1.9 2.  2.1 2.2 2.3 2.4]]]"},
    {LK_I32, {2, {2, 20}}, RAMP(1000000, 7),
     "[[1000000 1000007 1000014 1000021 1000028 1000035 1000042 1000049 1000056\n"
     "  1000063 1000070 1000077 1000084 1000091 1000098 1000105 1000112 1000119\n"
     "  1000126 1000133]\n"
     " [1000140 1000147 1000154 1000161 1000168 1000175 1000182 1000189 1000196\n"
     "  1000203 1000210 1000217 1000224 1000231 1000238 1000245 1000252 1000259\n"
     "  1000266 1000273]]"},
    {LK_F32, {1, {14}}, RAMP(-0.7, 0.1),
     "[-7.000000e-01 -6.000000e-01 -5.000000e-01 -4.000000e-01 -3.000000e-01\n"
     " -2.000000e-01 -1.000000e-01  1.110223e-16  1.000000e-01  2.000000e-01\n"
     "  3.000000e-01  4.000000e-01  5.000000e-01  6.000000e-01]"},
    {LK_F32, {1, {19}}, RAMP(10, 1),
     "[10. 11. 12. 13. 14. 15. 16. 17. 18. 19. 20. 21. 22. 23. 24. 25. 26. 27.\n"
     " 28.]"},
    {LK_F32, {1, {20}}, RAMP(10, 1),
     "[10. 11. 12. 13. 14. 15. 16. 17. 18. 19. 20. 21. 22. 23. 24. 25. 26. 27.\n"
     " 28. 29.]"},
    {LK_F32, {1, {9}}, RAMP(1e-06, 1e-06),
     "[1.e-06 2.e-06 3.e-06 4.e-06 5.e-06 6.e-06 7.e-06 8.e-06 9.e-06]"},
    {LK_I64, {1, {4}}, INTS(4611686018427387904, 4611686018427387904, 4611686018427387904, 4611686018427387904),
     "[4611686018427387904 4611686018427387904 4611686018427387904\n"
     " 4611686018427387904]"},
    {LK_I64, {2, {2, 2}}, INTS(4611686018427387904, -4611686018427387904, 4611686018427387904, -4611686018427387904),
     "[[ 4611686018427387904 -4611686018427387904]\n"
     " [ 4611686018427387904 -4611686018427387904]]"},
    {LK_F32, {1, {25}}, REALS(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),
     "[1.  1.  1.  1.  1.  1.  1.  1.  1.  1.  1.  1.  0.5 0.5 0.5 0.5 0.5 0.5\n"
     " 0.5 0.5 0.5 0.5 0.5 0.5 0.5]"},
    /* more than 1,000 elements are summarized */
    {LK_I32, {1, {1001}}, RAMP(0, 1),
     "[   0    1    2 ...  998  999 1000]"},
    {LK_F32, {1, {1001}}, RAMP(0, 1),
     "[   0.    1.    2. ...  998.  999. 1000.]"},
    {LK_I32, {2, {40, 26}}, RAMP(0, 1),
     "[[   0    1    2 ...   23   24   25]\n"
     " [  26   27   28 ...   49   50   51]\n"
     " [  52   53   54 ...   75   76   77]\n"
     " ...\n"
     " [ 962  963  964 ...  985  986  987]\n"
     " [ 988  989  990 ... 1011 1012 1013]\n"
     " [1014 1015 1016 ... 1037 1038 1039]]"},
    {LK_I32, {2, {501, 2}}, RAMP(0, 1),
     "[[   0    1]\n"
     " [   2    3]\n"
     " [   4    5]\n"
     " ...\n"
     " [ 996  997]\n"
     " [ 998  999]\n"
     " [1000 1001]]"},
    {LK_I32, {2, {2, 501}}, RAMP(0, 1),
     "[[   0    1    2 ...  498  499  500]\n"
     " [ 501  502  503 ...  999 1000 1001]]"},
    {LK_F32, {3, {2, 13, 51}}, RAMP(0, 0.5),
     "[[[0.000e+00 5.000e-01 1.000e+00 ... 2.400e+01 2.450e+01 2.500e+01]\n"
     "  [2.550e+01 2.600e+01 2.650e+01 ... 4.950e+01 5.000e+01 5.050e+01]\n"
     "  [5.100e+01 5.150e+01 5.200e+01 ... 7.500e+01 7.550e+01 7.600e+01]\n"
     "  ...\n"
     "  [2.550e+02 2.555e+02 2.560e+02 ... 2.790e+02 2.795e+02 2.800e+02]\n"
     "  [2.805e+02 2.810e+02 2.815e+02 ... 3.045e+02 3.050e+02 3.055e+02]\n"
     "  [3.060e+02 3.065e+02 3.070e+02 ... 3.300e+02 3.305e+02 3.310e+02]]\n"
     "\n"
     " [[3.315e+02 3.320e+02 3.325e+02 ... 3.555e+02 3.560e+02 3.565e+02]\n"
     "  [3.570e+02 3.575e+02 3.580e+02 ... 3.810e+02 3.815e+02 3.820e+02]\n"
     "  [3.825e+02 3.830e+02 3.835e+02 ... 4.065e+02 4.070e+02 4.075e+02]\n"
     "  ...\n"
     "  [5.865e+02 5.870e+02 5.875e+02 ... 6.105e+02 6.110e+02 6.115e+02]\n"
     "  [6.120e+02 6.125e+02 6.130e+02 ... 6.360e+02 6.365e+02 6.370e+02]\n"
     "  [6.375e+02 6.380e+02 6.385e+02 ... 6.615e+02 6.620e+02 6.625e+02]]]"},
    {LK_I32, {2, {6, 200}}, RAMP(0, 1),
     "[[   0    1    2 ...  197  198  199]\n"
     " [ 200  201  202 ...  397  398  399]\n"
     " [ 400  401  402 ...  597  598  599]\n"
     " [ 600  601  602 ...  797  798  799]\n"
     " [ 800  801  802 ...  997  998  999]\n"
     " [1000 1001 1002 ... 1197 1198 1199]]"},
    {LK_I32, {3, {7, 2, 90}}, RAMP(0, 1),
     "[[[   0    1    2 ...   87   88   89]\n"
     "  [  90   91   92 ...  177  178  179]]\n"
     "\n"
     " [[ 180  181  182 ...  267  268  269]\n"
     "  [ 270  271  272 ...  357  358  359]]\n"
     "\n"
     " [[ 360  361  362 ...  447  448  449]\n"
     "  [ 450  451  452 ...  537  538  539]]\n"
     "\n"
     " ...\n"
     "\n"
     " [[ 720  721  722 ...  807  808  809]\n"
     "  [ 810  811  812 ...  897  898  899]]\n"
     "\n"
     " [[ 900  901  902 ...  987  988  989]\n"
     "  [ 990  991  992 ... 1077 1078 1079]]\n"
     "\n"
     " [[1080 1081 1082 ... 1167 1168 1169]\n"
     "  [1170 1171 1172 ... 1257 1258 1259]]]"},
    {LK_F64, {1, {1100}}, RAMP(0.1, 1000),
     "[1.0000000e-01 1.0001000e+03 2.0001000e+03 ... 1.0970001e+06 1.0980001e+06\n"
     " 1.0990001e+06]"},
    {LK_F32, {5, {2, 1, 2, 1, 300}}, RAMP(0, 1),
     "[[[[[0.000e+00 1.000e+00 2.000e+00 ... 2.970e+02 2.980e+02 2.990e+02]]\n"
     "\n"
     "   [[3.000e+02 3.010e+02 3.020e+02 ... 5.970e+02 5.980e+02 5.990e+02]]]]\n"
     "\n"
     "\n"
     "\n"
     " [[[[6.000e+02 6.010e+02 6.020e+02 ... 8.970e+02 8.980e+02 8.990e+02]]\n"
     "\n"
     "   [[9.000e+02 9.010e+02 9.020e+02 ... 1.197e+03 1.198e+03 1.199e+03]]]]]"},
    {LK_F32, {2, {2, 600}}, RAMP(-1000000.0, 0.125),
     "[[-1000000.    -999999.9   -999999.75 ...  -999925.4   -999925.25\n"
     "   -999925.1 ]\n"
     " [ -999925.    -999924.9   -999924.75 ...  -999850.4   -999850.25\n"
     "   -999850.1 ]]"},
    {LK_I64, {1, {1200}}, RAMP(100000000000000000, 1000000000),
     "[100000000000000000 100000001000000000 100000002000000000 ...\n"
     " 100001197000000000 100001198000000000 100001199000000000]"},};

static const print_case bf16_cases[] = {
    {LK_BF16, {1, {4}}, REALS(0.10009765625, 1.0, -2.5, 0.333984375), "[ 0.1    1.    -2.5    0.334]"},
    {LK_BF16, {1, {2}}, REALS(12288.0, 12352.0), "[12288. 12352.]"},
    {LK_BF16, {1, {3}}, REALS(1.0, 3.140625, -123.5), "[   1.      3.14 -123.5 ]"},
    {LK_BF16, {1, {4}}, REALS(1.0, 3.140625, -123.5, 0.10009765625),
     "[ 1.000e+00  3.141e+00 -1.235e+02  1.001e-01]"},
    {LK_BF16, {1, {3}}, REALS(NAN, INFINITY, 0.0), "[nan inf  0.]"},
    {LK_BF16, {0, {0}}, REALS(0.10009765625), "0.1"},
    {LK_BF16, {0, {0}}, REALS(12352.0), "12350.0"},
    {LK_BF16, {0, {0}}, REALS(0.09375), "0.0938"},
    {LK_BF16, {0, {0}}, REALS(0x1p-133), "9e-41"},
    {LK_BF16, {0, {0}}, REALS(0x1.fep127), "3.39e+38"},
    {LK_BF16, {0, {0}}, REALS(0x1p127), "1.7e+38"},
};
/* clang-format on */

static lk_device *device;

static int64_t count_of(lk_shape shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape.ndim; i++)
        count *= shape.dim[i];
    return count;
}

static void store(lk_dtype dtype, void *data, int64_t i, double real, int64_t integer)
{
    float single = (float)real;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case LK_F32:
        ((float *)data)[i] = single;
        return;
    case LK_BF16:
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        return;
    case LK_F64:
        ((double *)data)[i] = real;
        return;
    case LK_I32:
        ((int32_t *)data)[i] = (int32_t)integer;
        return;
    case LK_I64:
        ((int64_t *)data)[i] = integer;
        return;
    default:
        ((uint8_t *)data)[i] = (uint8_t)integer;
    }
}

static lk_tensor *tensor_of(const print_case *c)
{
    int64_t count = count_of(c->shape);
    void *data = calloc((size_t)count + 1, lk_dtype_size(c->dtype));
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++) {
        double ramp = c->start + (double)i * c->step;
        double real = c->reals ? c->reals[i] : ramp;
        store(c->dtype, data, i, real, c->ints ? c->ints[i] : (int64_t)real);
    }
    lk_tensor *tensor = lk_tensor_from(device, c->dtype, c->shape, data);
    assert_non_null(tensor);
    free(data);
    return tensor;
}

static void check(const print_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        lk_tensor *tensor = tensor_of(&cases[i]);
        char *text = lk_tensor_text(tensor);
        assert_non_null(text);
        assert_string_equal(text, cases[i].expected);
        lk_free(text);
        lk_tensor_release(tensor);
    }
}

static void test_as_numpy_prints(void **state)
{
    (void)state;
    check(numpy_cases, sizeof numpy_cases / sizeof *numpy_cases);
}

static void test_bf16(void **state)
{
    (void)state;
    check(bf16_cases, sizeof bf16_cases / sizeof *bf16_cases);
}

static void test_print_adds_a_newline(void **state)
{
    (void)state;
    const float values[] = {3, 3};
    lk_tensor *tensor = lk_tensor_from(device, LK_F32, LK_SHAPE(1, 2), values);
    char *written = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&written, &length);
    assert_non_null(file);
    assert_int_equal(lk_tensor_print(tensor, file), LK_OK);
    assert_int_equal(lk_tensor_show(tensor, file), LK_OK);
    fclose(file);
    assert_string_equal(written, "[[3. 3.]]\n[[3. 3.]]\n<f32[1,2] on ref:0>\n");
    free(written);
    lk_tensor_release(tensor);
}

static void test_a_file_that_cannot_be_written(void **state)
{
    (void)state;
    lk_tensor *tensor = lk_tensor_from(device, LK_I32, LK_SCALAR, &(int32_t){7});
    FILE *file = fopen("/dev/null", "r");
    assert_non_null(file);
    assert_int_equal(lk_tensor_print(tensor, file), LK_ERR_IO);
    lk_error_clear();
    fclose(file);
    lk_tensor_release(tensor);
}

static void test_null_is_an_error(void **state)
{
    (void)state;
    assert_null(lk_tensor_text(NULL));
    assert_int_equal(lk_tensor_print(NULL, stdout), LK_ERR_ARGUMENT);
    lk_error_clear();
    assert_int_equal(lk_tensor_show(NULL, stdout), LK_ERR_ARGUMENT);
    lk_error_clear();
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    lk_tensor *tensor = tensor_of(&(print_case){LK_F32, LK_SHAPE(7, 200), RAMP(0, 0.25), NULL});
    char *expected = lk_tensor_text(tensor);
    assert_non_null(expected);
    failing f = fail_every(1);
    while (fail_next(&f)) {
        char *text = lk_tensor_text(tensor);
        stop_failing_with(&f, lk_error_status());
        assert_true((text == NULL) == f.reached);
        if (text)
            assert_string_equal(text, expected);
        lk_free(text);
    }
    assert_true(f.n > 2);
    lk_free(expected);
    lk_tensor_release(tensor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_numpy_prints),      cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_print_adds_a_newline), cmocka_unit_test(test_a_file_that_cannot_be_written),
        cmocka_unit_test(test_null_is_an_error),     cmocka_unit_test(test_every_allocation_may_fail),
    };
    return RUN_ON_DEVICE(tests, &device, "ref");
}

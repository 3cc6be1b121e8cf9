# sizes.sh: model_sizes FOLDER sets the array `sizes`: flags of a real model under which it does what it is for.
# inputs that mean something: a line of text has a width, the voice detector a sample rate, the classifier bytes
model_sizes() {
    sizes=()
    local dir=$1 set=$1/test_data_set_0
    case $dir in
    *ppocr*) sizes=(-d p2o.DynamicDimension.0=1 -d p2o.DynamicDimension.1=320) ;;
    *bert*) sizes=(-d max_seq_len_in_batch=32) ;;
    *silero*) sizes=(-i "input=$set/input_0.pb" -i "state=$set/input_1.pb" -i "sr=$set/input_2.pb") ;;
    *magika*) sizes=(-i "bytes=$set/input_0.pb") ;;
    esac
}
